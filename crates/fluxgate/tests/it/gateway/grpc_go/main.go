// Command grpc_go is grpc_calls.py with grpc-go: a service and its client, with the same methods, so
// that either client can call either service.
//
//	grpc_go serve            prints its address, and serves until its input ends
//	grpc_go call ADDRESS     makes calls of every kind, and prints a line for each that is as expected
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	big     = 10 << 20
	details = "grpc-status-details-bin"
	message = "50% of é\n"
	// A google.rpc.Status with the same code and message.
	rpcStatus = "\x08\x09\x12\x0a" + message
)

// raw passes messages as bytes.
type raw struct{}

func (raw) Name() string                        { return "proto" }
func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(data []byte, to any) error { *to.(*[]byte) = bytes.Clone(data); return nil }
func receive(stream grpc.ServerStream) ([]byte, error) {
	var message []byte
	err := stream.RecvMsg(&message)
	return message, err
}

func send(stream grpc.ServerStream, message []byte) error { return stream.SendMsg(&message) }

var cancelled = make(chan struct{}, 16)

// handlers serve one call each. All are streams: over HTTP/2 there is no difference.
var handlers = map[string]func(grpc.ServerStream) error{
	"Echo": func(stream grpc.ServerStream) error {
		sent, _ := metadata.FromIncomingContext(stream.Context())
		first := func(name string) string {
			if values := sent.Get(name); len(values) > 0 {
				return values[0]
			}
			return ""
		}
		err := stream.SetHeader(metadata.Pairs("x-initial", first("x-sent"), "x-initial-bin", first("x-sent-bin")))
		if err != nil {
			return err
		}
		stream.SetTrailer(metadata.Pairs("x-trailing", "t", "x-trailing-bin", "\x00\xff"))
		message, err := receive(stream)
		if err != nil {
			return err
		}
		return send(stream, message)
	},
	"Count": func(stream grpc.ServerStream) error {
		message, err := receive(stream)
		if err != nil {
			return err
		}
		count, _ := strconv.Atoi(string(message))
		for number := range count {
			if err := send(stream, []byte(strconv.Itoa(number))); err != nil {
				return err
			}
		}
		return nil
	},
	"Add": func(stream grpc.ServerStream) error {
		total := 0
		for {
			message, err := receive(stream)
			if err == io.EOF {
				return send(stream, []byte(strconv.Itoa(total)))
			}
			if err != nil {
				return err
			}
			number, _ := strconv.Atoi(string(message))
			total += number
		}
	},
	"Converse": func(stream grpc.ServerStream) error {
		for {
			message, err := receive(stream)
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			if err := send(stream, append(message, '!')); err != nil {
				return err
			}
		}
	},
	"Remaining": func(stream grpc.ServerStream) error {
		deadline, _ := stream.Context().Deadline()
		left := time.Until(deadline).Seconds()
		return send(stream, []byte(strconv.FormatFloat(left, 'f', 3, 64)))
	},
	"Sleep": func(stream grpc.ServerStream) error {
		select {
		case <-time.After(5 * time.Second):
			return send(stream, nil)
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	},
	"Endless": func(stream grpc.ServerStream) error {
		defer func() { cancelled <- struct{}{} }()
		for {
			if err := send(stream, bytes.Repeat([]byte("x"), 1000)); err != nil {
				return err
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-stream.Context().Done():
				return stream.Context().Err()
			}
		}
	},
	"WasCancelled": func(stream grpc.ServerStream) error {
		select {
		case <-cancelled:
			return send(stream, []byte("True"))
		case <-time.After(10 * time.Second):
			return send(stream, []byte("False"))
		}
	},
	"Fail": func(stream grpc.ServerStream) error {
		stream.SetTrailer(metadata.Pairs(details, rpcStatus))
		return status.Error(codes.FailedPrecondition, message)
	},
}

func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	service := grpc.ServiceDesc{ServiceName: "test.Service", HandlerType: (*any)(nil)}
	for name, handle := range handlers {
		service.Streams = append(service.Streams, grpc.StreamDesc{
			StreamName:    name,
			Handler:       func(_ any, stream grpc.ServerStream) error { return handle(stream) },
			ServerStreams: true,
			ClientStreams: true,
		})
	}
	server := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(2*big))
	server.RegisterService(&service, nil)
	fmt.Println(listener.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}

// caller makes calls over one connection.
type caller struct{ connection *grpc.ClientConn }

func path(name string) string { return "/test.Service/" + name }

// unary makes a call with one message in each direction.
func (c caller) unary(timeout time.Duration, name string, message []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "x-sent", "s", "x-sent-bin", "\x00\x01")
	var answer []byte
	err := c.connection.Invoke(ctx, path(name), &message, &answer, options...)
	return answer, err
}

// stream sends messages, each after the answer to the one before where it takes turns, and returns all
// answers.
func (c caller) stream(name string, messages [][]byte, takesTurns bool) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := c.connection.NewStream(ctx, both, path(name))
	if err != nil {
		return nil, err
	}
	var answers [][]byte
	next := func() error {
		var answer []byte
		err := stream.RecvMsg(&answer)
		if err == nil {
			answers = append(answers, answer)
		}
		return err
	}
	for _, message := range messages {
		if err := stream.SendMsg(&message); err != nil {
			return nil, err
		}
		if takesTurns {
			if err := next(); err != nil {
				return nil, err
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	for {
		switch err := next(); err {
		case nil:
		case io.EOF:
			return answers, nil
		default:
			return nil, err
		}
	}
}

func expect(what string, isExpected bool, seen ...any) {
	if !isExpected {
		fmt.Printf("%s: %q\n", what, seen)
		os.Exit(1)
	}
	fmt.Println(what)
}

func call(address string) error {
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(2*big), grpc.MaxCallSendMsgSize(2*big)))
	if err != nil {
		return err
	}
	defer connection.Close()
	c := caller{connection}

	var initial, trailing metadata.MD
	answer, err := c.unary(10*time.Second, "Echo", []byte("hello"), grpc.Header(&initial), grpc.Trailer(&trailing))
	value := func(of metadata.MD, name string) string {
		if values := of.Get(name); len(values) == 1 {
			return values[0]
		}
		return "none"
	}
	expect("unary", err == nil && string(answer) == "hello" &&
		value(initial, "x-initial") == "s" && value(initial, "x-initial-bin") == "\x00\x01" &&
		value(trailing, "x-trailing") == "t" && value(trailing, "x-trailing-bin") == "\x00\xff",
		answer, err, initial, trailing)

	large := bytes.Repeat([]byte("0123456789abcdef"), big/16)
	answer, err = c.unary(time.Minute, "Echo", large)
	expect("large", err == nil && bytes.Equal(answer, large), len(answer), err)

	answers, err := c.stream("Count", [][]byte{[]byte("500")}, false)
	isCounted := err == nil && len(answers) == 500
	for number, answer := range answers {
		isCounted = isCounted && string(answer) == strconv.Itoa(number)
	}
	expect("server streaming", isCounted, len(answers), err)

	answers, err = c.stream("Add", answers, false)
	expect("client streaming", err == nil && len(answers) == 1 && string(answers[0]) == "124750", answers, err)

	answers, err = c.stream("Converse", [][]byte{[]byte("to"), []byte("and"), []byte("fro")}, true)
	expect("both streaming", string(bytes.Join(answers, nil)) == "to!and!fro!", answers, err)

	answer, err = c.unary(7*time.Second, "Remaining", nil)
	left, _ := strconv.ParseFloat(string(answer), 64)
	expect("deadline is passed on", left > 5 && left < 8, answer, err)
	_, err = c.unary(300*time.Millisecond, "Sleep", nil)
	expect("deadline", status.Code(err) == codes.DeadlineExceeded, err)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path("Endless"))
	if err != nil {
		return err
	}
	var none []byte
	if err := stream.SendMsg(&none); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(&answer); err != nil {
		return err
	}
	cancel()
	answer, err = c.unary(20*time.Second, "WasCancelled", nil)
	expect("cancelled", string(answer) == "True", answer, err)

	_, err = c.unary(10*time.Second, "Fail", nil, grpc.Trailer(&trailing))
	failed := status.Convert(err)
	expect("details", failed.Code() == codes.FailedPrecondition && failed.Message() == message &&
		value(trailing, details) == rpcStatus, err, trailing)

	_, err = c.unary(10*time.Second, "Unknown", nil)
	expect("unknown", status.Code(err) == codes.Unimplemented, err)
	return nil
}

func main() {
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve()
	case "call":
		err = call(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
