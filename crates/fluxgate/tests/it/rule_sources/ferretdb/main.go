// FerretDB with files in a directory, on a free port of the loopback address. With a certificate and
// its key it speaks TLS, and with an authority it wants certificates of its clients. It ends with
// SIGTERM.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	const address = "127.0.0.1:0"
	arguments := os.Args[1:]
	var listener ferretdb.ListenerConfig
	switch len(arguments) {
	case 1:
		listener.TCP = address
	case 4:
		listener.TLSCAFile = arguments[3]
		fallthrough
	case 3:
		listener.TLS, listener.TLSCertFile, listener.TLSKeyFile = address, arguments[1], arguments[2]
	default:
		fail("usage: ferretdb DIRECTORY [CERTIFICATE KEY [AUTHORITY]]")
	}
	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := &slog.HandlerOptions{Level: slog.LevelError}
	database, err := ferretdb.New(&ferretdb.Config{
		Listener:  listener,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, options)),
		Handler:   "sqlite",
		SQLiteURL: "file:" + arguments[0] + "/",
	})
	if err != nil {
		fail(err)
	}
	fmt.Fprintln(os.Stderr, "listening:", database.MongoDBURI())
	if err := database.Run(ended); err != nil {
		fail(err)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}
