package testservice

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands in front of a service and fails on demand. clients/README.md describes its modes.
type Proxy struct {
	// Address is host and port.
	Address string
	target  string
	asked   atomic.Int64
	lost    atomic.Int64
	running sync.WaitGroup

	mu          sync.Mutex
	mode        string
	listener    net.Listener
	connections map[net.Conn]struct{}
	// stops counts how often it was stopped.
	stops int
}

// StartProxy starts a proxy in front of a service. Stop stops it.
func StartProxy(t testing.TB, service *Service, mode string) *Proxy {
	t.Helper()
	proxy := &Proxy{Address: freeAddress(t), target: service.Address, connections: make(map[net.Conn]struct{})}
	if err := proxy.SetMode(mode); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// URL returns the address of the service for a client.
func (p *Proxy) URL() string { return "http://" + p.Address }

// Asked returns how many calls have arrived since it was last called.
func (p *Proxy) Asked() int64 { return p.asked.Swap(0) }

// Lost returns how many calls the service has got whose answer the client has not: it may have taken
// slots.
func (p *Proxy) Lost() int64 { return p.lost.Load() }

// SetMode changes the mode.
func (p *Proxy) SetMode(mode string) error {
	switch mode {
	case "", "up", "slow", "swallow", "reset", "garbage", "cut", "error":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mode = mode
		return p.listen()
	case "down":
		p.Stop()
	case "restart":
		p.Stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		stops := p.stops
		time.AfterFunc(200*time.Millisecond, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			// It may have been stopped again.
			if p.stops == stops {
				p.mode = "up"
				_ = p.listen()
			}
		})
	default:
		return fmt.Errorf("unknown mode %q", mode)
	}
	return nil
}

// Stop closes the port and all connections.
func (p *Proxy) Stop() {
	p.mu.Lock()
	p.stops++
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for connection := range p.connections {
		connection.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// listen opens the port, unless it is open. The caller holds mu.
func (p *Proxy) listen() error {
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.Address)
	if err != nil {
		return err
	}
	p.listener = listener
	p.running.Add(1)
	go func() {
		defer p.running.Done()
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			p.running.Add(1)
			go func() {
				defer p.running.Done()
				p.serve(connection)
			}()
		}
	}()
	return nil
}

// track closes a connection with the proxy, and returns a function that closes it now.
func (p *Proxy) track(connection net.Conn) func() {
	p.mu.Lock()
	p.connections[connection] = struct{}{}
	isDown := p.listener == nil
	p.mu.Unlock()
	if isDown {
		connection.Close()
	}
	return func() {
		p.mu.Lock()
		delete(p.connections, connection)
		p.mu.Unlock()
		connection.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.track(client)()
	reader := bufio.NewReader(client)
	var service net.Conn
	var answers *bufio.Reader
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		if request.Method == http.MethodPost && strings.HasPrefix(request.URL.Path, "/v1/") {
			p.asked.Add(1)
		}
		p.mu.Lock()
		mode := p.mode
		p.mu.Unlock()
		switch mode {
		case "slow":
			time.Sleep(time.Second)
		case "reset":
			_ = client.(*net.TCPConn).SetLinger(0)
			return
		case "garbage":
			_, _ = io.WriteString(client, "garbage\r\n\r\n")
			return
		case "cut":
			_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"allowed\"")
			return
		case "error":
			_, _ = io.WriteString(client, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops")
			continue
		}
		if service == nil {
			if service, err = net.Dial("tcp", p.target); err != nil {
				return
			}
			defer p.track(service)()
			answers = bufio.NewReader(service)
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		p.lost.Add(1)
		if request.Write(service) != nil {
			return
		}
		answer, err := http.ReadResponse(answers, request)
		if err != nil || mode == "swallow" {
			return
		}
		if answer.Write(client) != nil {
			return
		}
		p.lost.Add(-1)
	}
}
