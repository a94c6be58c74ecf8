print("certprov")
