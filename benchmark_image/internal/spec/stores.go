package spec

// The stores that a load can be for.
const (
	Etcd = "etcd"
)

// storeNames are all of them, the default first.
var storeNames = []string{Etcd}

// lack is something that a load may ask for and a store does not have.
type lack struct {
	parameter *Parameter // with which it is asked for
	asked     func(s *Spec) bool
	allowed   string // with the reason
}

// lacks is the table of what stores cannot do.
var lacks = map[string][]lack{}

// validateStore refuses what the store cannot do.
func (s *Spec) validateStore() *Problem {
	for _, missing := range lacks[s.Store] {
		if missing.asked(s) {
			return s.problem(missing.parameter, missing.allowed)
		}
	}
	return nil
}
