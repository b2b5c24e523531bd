// Small_proxy stands in for zetcd and cetcd in tests: with the flags of the one it serves as much of ZooKeeper's
// protocol as loads speak, with those of the other as much of Consul's HTTP API, in front of etcd's JSON gateway. It
// keeps nothing itself. A value of 13 bytes ends it: then there is a proxy that has crashed.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
)

const deadly = 13

func main() {
	zookeeper := flag.String("zkaddr", "", "where ZooKeeper's clients are served")
	endpoints := flag.String("endpoints", "", "etcd, for ZooKeeper's clients")
	consul := flag.String("consuladdr", "", "where Consul's clients are served")
	endpoint := flag.String("etcd", "", "etcd, for Consul's clients")
	flag.Parse()
	if *zookeeper != "" {
		log.Fatal(serveZooKeeper(*zookeeper, etcd{*endpoints}))
	}
	log.Fatal(serveConsul(*consul, etcd{*endpoint}))
}

// etcd is a member, by the address of its JSON gateway.
type etcd struct{ address string }

type object = map[string]any

// call posts a request and decodes its answer.
func (e etcd) call(path string, request object, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	response, err := http.Post("http://"+e.address+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func coded(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// get reads a key; nil: it is not there. revision is that at which it was written last.
func (e etcd) get(key string, serializable bool) (value []byte, revision int64, err error) {
	var answer struct {
		Kvs []struct {
			Value       []byte
			ModRevision int64 `json:"mod_revision,string"`
		}
	}
	if err = e.call("/v3/kv/range", object{"key": coded(key), "serializable": serializable}, &answer); err != nil {
		return nil, 0, err
	}
	if len(answer.Kvs) == 0 {
		return nil, 0, nil
	}
	return append([]byte{}, answer.Kvs[0].Value...), answer.Kvs[0].ModRevision, nil
}

// put writes a key if it exists, or if it does not; done tells whether it was as wanted.
func (e etcd) put(key, value string, exists bool) (revision int64, done bool, err error) {
	if len(value) == deadly {
		panic("a value of 13 bytes")
	}
	compare := object{"key": coded(key), "target": "CREATE", "create_revision": 0, "result": "EQUAL"}
	if exists {
		compare["result"] = "GREATER"
	}
	write := object{"request_put": object{"key": coded(key), "value": coded(value)}}
	var answer struct {
		Header struct {
			Revision int64 `json:",string"`
		}
		Succeeded bool
	}
	err = e.call("/v3/kv/txn", object{"compare": []any{compare}, "success": []any{write}}, &answer)
	return answer.Header.Revision, answer.Succeeded, err
}

// The types of ZooKeeper's requests, and its errors.
const (
	create, getData, setData, syncPath, ping, closeSession = 1, 4, 5, 9, 11, -11

	ok, noNode, nodeExists = 0, -101, -110
)

func serveZooKeeper(address string, to etcd) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			if err := session(connection, to); err != nil && !errors.Is(err, io.EOF) {
				log.Print(err)
			}
		}()
	}
}

// session serves one connection: the word ruok, or a session and its requests, one after the other.
func session(connection net.Conn, to etcd) error {
	var first [4]byte
	if _, err := io.ReadFull(connection, first[:]); err != nil {
		return err
	}
	if string(first[:]) == "ruok" {
		_, err := io.WriteString(connection, "imok")
		return err
	}
	opening, err := rest(connection, first)
	if err != nil {
		return err
	}
	timeout := opening.skip(12).take(4)
	opened := append(append(make([]byte, 4), timeout...), 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16)
	if err := send(connection, append(opened, make([]byte, 16)...)); err != nil {
		return err
	}
	for {
		if _, err := io.ReadFull(connection, first[:]); err != nil {
			return err
		}
		r, err := rest(connection, first)
		if err != nil {
			return err
		}
		xid, kind := r.take(4), r.int32()
		revision, code, body, err := answer(to, kind, r)
		if err != nil {
			return err
		}
		header := binary.BigEndian.AppendUint64(append([]byte{}, xid...), uint64(revision))
		if err := send(connection, append(binary.BigEndian.AppendUint32(header, uint32(code)), body...)); err != nil {
			return err
		}
		if kind == closeSession {
			return nil
		}
	}
}

// answer carries out a request.
func answer(to etcd, kind int32, r *packet) (revision int64, code int32, body []byte, err error) {
	written := func(path, data string, exists bool) {
		var done bool
		if revision, done, err = to.put("zk"+path, data, exists); !done {
			code = nodeExists
			if exists {
				code = noNode
			}
		}
	}
	switch kind {
	case ping, closeSession:
	case syncPath: // the root is no key: etcd has answered all the same
		_, _, err = to.get("zk"+r.text(), false)
		code = noNode
	case getData:
		var value []byte
		if value, revision, err = to.get("zk"+r.text(), true); value == nil {
			return revision, noNode, nil, err
		}
		body = binary.BigEndian.AppendUint32(nil, uint32(len(value)))
		body = append(append(body, value...), stat(revision, len(value))...)
	case create:
		path, data := r.text(), r.text()
		written(path, data, false)
		body = append(binary.BigEndian.AppendUint32(nil, uint32(len(path))), path...)
	case setData:
		path, data := r.text(), r.text()
		written(path, data, true)
		body = stat(revision, len(data))
	default:
		return 0, 0, nil, fmt.Errorf("a request of type %d", kind)
	}
	if code != ok {
		body = nil
	}
	return revision, code, body, err
}

func stat(revision int64, length int) []byte {
	b := make([]byte, 68)
	binary.BigEndian.PutUint64(b[8:], uint64(revision))
	binary.BigEndian.PutUint32(b[52:], uint32(length))
	return b
}

// packet is what is left to be read of one.
type packet struct{ b []byte }

func rest(c io.Reader, length [4]byte) (*packet, error) {
	n := binary.BigEndian.Uint32(length[:])
	if n >= 1<<20 {
		return nil, fmt.Errorf("a packet of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return &packet{b}, err
}

func (p *packet) take(n int) (taken []byte) {
	taken, p.b = p.b[:n], p.b[n:]
	return taken
}

func (p *packet) skip(n int) *packet {
	p.b = p.b[n:]
	return p
}

func (p *packet) int32() int32 { return int32(binary.BigEndian.Uint32(p.take(4))) }
func (p *packet) text() string { return string(p.take(int(p.int32()))) }

func send(c io.Writer, b []byte) error {
	_, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// serveConsul answers as cetcd does: no answer has an index.
func serveConsul(address string, to etcd) error {
	http.HandleFunc("PUT /v1/kv/{key...}", func(w http.ResponseWriter, r *http.Request) {
		key := "con/" + r.PathValue("key")
		body, err := io.ReadAll(r.Body)
		if err == nil {
			var done bool
			if _, done, err = to.put(key, string(body), false); !done && err == nil {
				_, _, err = to.put(key, string(body), true)
			}
		}
		_, _ = io.WriteString(w, strconv.FormatBool(err == nil)) // the client may have gone
	})
	// Only the probe of a member, whose key is not there, is read.
	http.HandleFunc("GET /v1/kv/{key...}", func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := to.get("con/"+r.PathValue("key"), false); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "[]") // the client may have gone
	})
	return http.ListenAndServe(address, nil)
}
