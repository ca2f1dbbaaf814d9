package memlease

import "time"

// Forget drops key's record behind everybody's back.
func (s *Store) Forget(key string) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if e := s.memory.records[key]; e != nil {
		s.memory.written.Remove(e)
		delete(s.memory.records, key)
	}
}

// Len returns how many records s keeps.
func (s *Store) Len() int {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return len(s.memory.records)
}

// Bound lowers how many records s keeps.
func (s *Store) Bound(n int) { s.memory.max = n }

// Ordered returns how many records are in the order of their writes, -1 if that is wrong.
func (s *Store) Ordered() (n int) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	last := time.Duration(0)
	for e := s.memory.written.Front(); e != nil; e = e.Next() {
		r := e.Value.(*record)
		if r.written < last || s.memory.records[r.key] != e {
			return -1
		}
		n, last = n+1, r.written
	}
	return n
}
