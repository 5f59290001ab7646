// A gRPC server whose calls are limited per user. Its service is gRPC's own health service.
//
//	go run ./grpc [SERVICE [ADDRESS]]
package main

import (
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/fluxgategrpc"
)

func main() {
	service, address := "http://127.0.0.1:8081", "127.0.0.1:3000"
	if len(os.Args) > 1 {
		service = os.Args[1]
	}
	if len(os.Args) > 2 {
		address = os.Args[2]
	}
	client := fluxgate.New(service)
	defer client.Close()

	// The user is in the metadata x-user-id.
	limits := fluxgategrpc.New(client, "pages", fluxgategrpc.Exclude("/grpc.health.v1.Health/Watch"))
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())

	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on %s", listener.Addr())
	log.Fatal(server.Serve(listener))
}
