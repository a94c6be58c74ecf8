import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.KeyStore;
import java.security.Security;
import java.security.cert.CertificateFactory;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/** Client CONFIGURATION CA PORT: for each line of its input, load or TLSv1.2 or TLSv1.3, it loads its keys or requests a page. */
class Client {
    public static void main(String[] arguments) throws Exception {
        var provider = Security.getProvider("SunPKCS11").configure(arguments[0]);
        Security.addProvider(provider);
        var trust = KeyStore.getInstance(KeyStore.getDefaultType());
        trust.load(null, null);
        try (var file = new FileInputStream(arguments[1])) {
            trust.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        var trusted = TrustManagerFactory.getInstance("PKIX");
        trusted.init(trust);
        var input = new BufferedReader(new InputStreamReader(System.in));
        var keys = KeyManagerFactory.getInstance("SunX509");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                if (line.equals("load")) {
                    var store = KeyStore.getInstance("PKCS11", provider);
                    store.load(null, null);
                    keys.init(store, null);
                } else {
                    var context = SSLContext.getInstance(line);
                    context.init(keys.getKeyManagers(), trusted.getTrustManagers(), null);
                    try (var socket = (SSLSocket) context.getSocketFactory().createSocket("127.0.0.1", Integer.parseInt(arguments[2]))) {
                        socket.setEnabledProtocols(new String[] {line});
                        socket.getOutputStream().write("GET / HTTP/1.0\r\n\r\n".getBytes());
                        System.out.print(new String(socket.getInputStream().readAllBytes()));
                    }
                }
                System.out.println("done: " + line);
            } catch (Exception error) {
                System.out.println("failed: " + error);
            }
        }
    }
}
