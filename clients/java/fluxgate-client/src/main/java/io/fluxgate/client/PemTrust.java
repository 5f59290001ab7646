package io.fluxgate.client;

import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** TLS that trusts the authorities of a PEM file only. */
public final class PemTrust {
    private PemTrust() {}

    /**
     * Reads a PEM file with one or more certificates.
     *
     * @throws IOException if it cannot be read, or has no certificate
     */
    public static SSLContext of(Path file) throws IOException {
        try (InputStream in = new BufferedInputStream(Files.newInputStream(file))) {
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            int count = 0;
            for (Certificate it : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                store.setCertificateEntry("ca-" + count++, it);
            }
            if (count == 0) {
                throw new IOException(file + " has no certificate");
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(store);
            SSLContext tls = SSLContext.getInstance("TLS");
            tls.init(null, trust.getTrustManagers(), null);
            return tls;
        } catch (NoSuchFileException e) {
            throw new IOException("there is no file " + file, e);
        } catch (GeneralSecurityException e) {
            throw new IOException(file + " is not a certificate in PEM", e);
        }
    }
}
