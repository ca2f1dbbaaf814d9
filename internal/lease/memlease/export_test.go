package memlease

// Forget drops key's record behind everybody's back.
func (s *Store) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		s.unlink(r)
		delete(s.records, key)
	}
}

// Len returns how many records s keeps.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// Bound lowers how many records s keeps.
func (s *Store) Bound(n int) { s.max = n }

// Linked returns how many records are in the order of their writes, by either way.
func (s *Store) Linked() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := s.oldest; r != nil; r = r.newer {
		if n++; r.newer == nil && r != s.newest || r.newer != nil && (r.newer.older != r || r.newer.written < r.written) {
			return -1
		}
	}
	return n
}
