package spec

import (
	"slices"
	"strings"
	"testing"
)

// TestWhatAStoreLacksIsRefused has loads for stores that cannot carry them, and some that they can.
func TestWhatAStoreLacksIsRefused(t *testing.T) {
	const noThird, onlyWith = "has no third consistency", "only together with the store"
	const byURL = "the service and its URL say"
	const put, get = `"putPath":"/{key}"`, `"getPath":"/v0/entity?id={key}&ack=2&from=3"`
	for body, want := range map[string]string{
		`range {"key":"k","consistency":"default"}`:                                             "etcd " + noThird,
		`put {"putPath":"/{key}"}`:                                                              onlyWith,
		`range {"key":"k","absentCodes":"404"}`:                                                 onlyWith,
		`range {"store":"zookeeper","key":"k"}`:                                                 "",
		`range {"store":"zookeeper","key":"k","consistency":"s","requireFound":true}`:           "",
		`range {"store":"zookeeper","key":"k","consistency":"default"}`:                         noThird,
		`mixed {"store":"zookeeper","keySpace":9,"valSize":20,"verify":true,"history":true}`:    "",
		`txn {"store":"zookeeper","valSize":1000000,"targetLeader":true}`:                       "",
		`range {"store":"zookeeper","key":"k","prefix":true}`:                                   "no ranges of keys",
		`range {"store":"zookeeper","keySize":8,"spanKeys":2}`:                                  "no ranges of keys",
		`range {"store":"zookeeper","key":"k","countOnly":true}`:                                "no ranges of keys",
		`put {"store":"zookeeper","valSize":1000001}`:                                           "at most 1000000 bytes",
		`put {"store":"zookeeper","user":"me"}`:                                                 "no authentication",
		`put {"store":"zookeeper","caFile":"f"}`:                                                "no TLS",
		`put {"store":"zookeeper","chroot":"/a/b c"}`:                                           "visible ASCII",
		`put {"store":"zookeeper","chroot":"/"}`:                                                "a slash before each",
		`put {"store":"zookeeper","chroot":"a/b"}`:                                              "a slash before each",
		`put {"store":"zookeeper","chroot":"/a/"}`:                                              "a slash before each",
		`put {"store":"zookeeper","chroot":"/a//b"}`:                                            "a slash before each",
		`put {"store":"zookeeper","chroot":"/a/../b"}`:                                          "a slash before each",
		`put {"store":"zookeeper","chroot":"/a/b.c/...d"}`:                                      "",
		`range {"store":"zookeeper","key":"k","chroot":"/ü"}`:                                   "visible ASCII",
		`put {"store":"consul","tokenFile":"t"}`:                                                "",
		`put {"tokenFile":"t"}`:                                                                 onlyWith,
		`put {"chroot":"/a"}`:                                                                   onlyWith,
		`put {"store":"zetcd"}`:                                                                 `"consul"`,
		`put {"store":"consul","targetLeader":true}`:                                            "",
		`put {"store":"consul","keyPrefix":"a/b/"}`:                                             "",
		`put {"store":"consul","keyPrefix":"a//b"}`:                                             "redirects",
		`put {"store":"consul","keyPrefix":"/a"}`:                                               "redirects",
		`put {"store":"consul","keyPrefix":"a/../b"}`:                                           "redirects",
		`range {"store":"consul","key":"./k"}`:                                                  "redirects",
		`range {"store":"consul","key":"k/"}`:                                                   "",
		`range {"store":"consul","key":"k","consistency":"s"}`:                                  "",
		`put {"store":"consul","user":"u"}`:                                                     "tokenFile",
		`range {"store":"consul","key":"k","prefix":true}`:                                      "neither an end nor a limit",
		`mixed {"store":"consul","spanKeys":2}`:                                                 "neither an end nor a limit",
		`txn {"store":"consul"}`:                                                                "",
		`put {"store":"http"}`:                                                                  "required, for puts",
		`range {"store":"http","key":"k"}`:                                                      "required, for reads",
		`mixed {"store":"http",` + put + `}`:                                                    "required, for reads",
		`mixed {"store":"http",` + put + `,` + get + `}`:                                        "",
		`mixed {"store":"http",` + put + `,` + get + `,"spanKeys":2}`:                           "no ranges",
		`mixed {"store":"http",` + put + `,` + get + `,"consistency":"s"}`:                      byURL,
		`txn {"store":"http"}`:                                                                  "no transactions",
		`put {"store":"http",` + put + `,"targetLeader":true}`:                                  "who leads",
		`put {"store":"http",` + put + `,"user":"u"}`:                                           "no login",
		`put {"store":"http","putPath":"{key}"}`:                                                "from '/' on",
		`put {"store":"http","putPath":"/key"}`:                                                 "{key} once",
		`put {"store":"http","putPath":"/{key}/{key}"}`:                                         "{key} once",
		`put {"store":"http","putPath":"/{key}{id}"}`:                                           "{key} once",
		`put {"store":"http","putPath":"/{key} HTTP/1.1"}`:                                      "visible ASCII",
		`put {"store":"http","putPath":"/{key}\r\nX: y"}`:                                       "visible ASCII",
		`put {"store":"http","putPath":"/\u00fc{key}"}`:                                         "visible ASCII",
		`put {"store":"http","putPath":"/{key}#a"}`:                                             "but '#'",
		`put {"store":"http",` + put + `,"putCodes":"200,200"}`:                                 "twice",
		`put {"store":"http",` + put + `,"putCodes":"99"}`:                                      "status codes",
		`put {"store":"http",` + put + `,"putCodes":"200, 201"}`:                                "status codes",
		`put {"store":"http",` + put + `,"putCodes":"+20"}`:                                     "status codes",
		`put {"store":"http",` + put + `,"putCodes":"200,"}`:                                    "status codes",
		`range {"store":"http","key":"k",` + get + `,"absentCodes":"200"}`:                      "other codes than 200",
		`range {"store":"http","key":"k",` + get + `,"getCodes":"404"}`:                         "other codes than 404",
		`range {"store":"http","key":"k",` + get + `,"getCodes":"200,404","absentCodes":"410"}`: "",
	} {
		operation, rest, _ := strings.Cut(body, " ")
		s, problem := ParseBody(Operation(operation), []byte(strings.Replace(rest, "{", `{"endpoints":"a:1",`, 1)))
		switch {
		case want == "" && problem != nil:
			t.Errorf("%s: %v", body, problem)
		case want != "" && (problem == nil || !strings.Contains(problem.Error(), want)):
			t.Errorf("%s: %+v, %v", body, s, problem)
		}
	}
}

func TestStatusCodesHaveDefaults(t *testing.T) {
	s := Default(Mixed)
	if !slices.Equal(s.WrittenCodes(), []int{200, 201, 204}) || !slices.Equal(s.FoundCodes(), []int{200}) ||
		!slices.Equal(s.AbsentKeyCodes(), []int{404}) {
		t.Errorf("%v %v %v", s.WrittenCodes(), s.FoundCodes(), s.AbsentKeyCodes())
	}
	if s.PutCodes = "202"; !slices.Equal(s.WrittenCodes(), []int{202}) {
		t.Errorf("%v", s.WrittenCodes())
	}
}

func TestEachStoreHasItsEndpoint(t *testing.T) {
	for _, name := range storeNames {
		s := Default(Put)
		s.Store, s.PutPath = name, map[string]string{HTTP: "/{key}"}[name]
		s.Complete(func(string) bool { return false })
		if s.Endpoints[0] != defaultEndpoints[name] || s.Validate() != nil {
			t.Errorf("%s: endpoints %v, %v", name, s.Endpoints, s.Validate())
		}
		s.Endpoints = []string{"a:1"}
		s.Complete(func(name string) bool { return name == paramEndpoints.Name })
		if !slices.Equal(s.Endpoints, []string{"a:1"}) {
			t.Errorf("%s: endpoints %v in place of those that were given", name, s.Endpoints)
		}
	}
}
