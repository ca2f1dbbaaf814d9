package azure

import (
	"crypto/x509"
	"fmt"
	"os"
)

// certFile is where Go, on Unix, reads the trusted certificates from; it ignores a file that has none
// (pkg.go.dev/crypto/x509#SystemCertPool).
const certFile = "SSL_CERT_FILE"

// CertFile returns an error if SSL_CERT_FILE is set and names no file with certificates.
func CertFile() error {
	name := os.Getenv(certFile)
	if name == "" {
		return nil
	}

	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w: correct the path, or unset it", certFile, err)
	}

	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%s (%s) holds no certificate: it must be in PEM, as in -----BEGIN CERTIFICATE-----", certFile, name)
	}

	return nil
}

// Untrusted returns what to do if the certificate of a service is not trusted.
func Untrusted() string {
	if err := CertFile(); err != nil {
		return err.Error()
	}
	return "check the host name, whether a proxy intercepts TLS, and whether its certificate authority is installed here, or in the " +
		"file that " + certFile + " names"
}
