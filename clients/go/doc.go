// Package fluxgate limits requests by the decisions of a FluxGate service.
//
//	client := fluxgate.New("http://127.0.0.1:8081")
//	defer client.Close()
//	limit := fluxgate.Middleware(client, "api-limits")
//	http.ListenAndServe(":8080", limit(handler))
//
// Other programs call the client themselves:
//
//	decision, err := client.Check(ctx, "api-limits", fluxgate.Request{User: "ann"})
//
// [Client.Hold] takes a slot, or charges a cost that is known only afterwards; [Client.Wait] waits
// for its turn. A [Gate] does for any server what [Middleware] does for net/http; the package
// fluxgategrpc uses it for gRPC.
//
// # Failures
//
// A call takes at most [Deadline]. If the service has not decided by then, [OnError] does: the
// request is allowed (the default), denied, or the call returns an [*UnavailableError]. After three
// failures in a row the client makes no calls for half a second, so that an outage does not cost
// every request the deadline. Then it makes one call at a time until one succeeds.
//
// A call that may have been sent is not sent again: a request is never charged twice.
package fluxgate
