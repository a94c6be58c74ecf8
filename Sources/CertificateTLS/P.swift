import AsyncHTTPClient
struct Placeholder {}
