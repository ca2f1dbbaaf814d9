package memlease

// Forget drops key's record behind everybody's back.
func (s *Store) Forget(key string) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if r := s.memory.records[key]; r != nil {
		s.memory.unlink(r)
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

// Linked returns how many records are in the order of their writes, by either way.
func (s *Store) Linked() (n int) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for r := s.memory.oldest; r != nil; r = r.newer {
		if n++; r.newer == nil && r != s.memory.newest || r.newer != nil && (r.newer.older != r || r.newer.written < r.written) {
			return -1
		}
	}
	return n
}
