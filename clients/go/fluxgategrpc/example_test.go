package fluxgategrpc_test

import (
	"google.golang.org/grpc"

	fluxgate "github.com/openfluxgate/fluxgate/clients/go"
	"github.com/openfluxgate/fluxgate/clients/go/fluxgategrpc"
)

// The snippets of the documents, so that they compile.

func newServer(client *fluxgate.Client) *grpc.Server {
	limits := fluxgategrpc.New(client, "api-limits", fluxgategrpc.Exclude("/grpc.health.v1.Health/*"))
	server := grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream))
	return server
}
