module github.com/openfluxgate/fluxgate/clients/go

go 1.22
