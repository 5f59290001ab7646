// Package fluxgate limits requests by the decisions of a FluxGate service.
//
//	client := fluxgate.New("http://127.0.0.1:8081")
//	defer client.Close()
//	limit := fluxgate.Middleware(client, "api-limits")
//	http.ListenAndServe(":8080", limit(handler))
//
// A program that is not an HTTP server asks for decisions itself:
//
//	decision, err := client.Check(ctx, "api-limits", fluxgate.Request{User: "ann"})
//
// [Client.Hold] takes a slot, or charges a cost that is known only afterwards; [Client.Wait] waits
// for its turn. A [Gate] does for any server what [Middleware] does for net/http; the package
// fluxgategrpc uses it for gRPC.
//
// # Failures
//
// A call takes at most [Deadline]. If the service does not decide within it, [OnError] does: the
// request is allowed (the default), denied, or the call returns an [*UnavailableError]. After three
// failures in a row the service is not asked for half a second, so that requests do not pay for
// its outage; then one call at a time tries it again.
//
// A call that may have been sent is not sent again: a request is never charged twice.
package fluxgate
