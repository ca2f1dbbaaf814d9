package records_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"alertworker/internal/records"
)

// A mutant is a store in which some methods are replaced by wrong ones.
type mutant struct {
	records.Store
	read  func(ctx context.Context, name string, limit int) (records.Record, error)
	stat  func(ctx context.Context, name string) (records.Record, error)
	write func(ctx context.Context, r records.Record) (string, error)
}

func (m mutant) Read(ctx context.Context, name string, limit int) (records.Record, error) {
	if m.read != nil {
		return m.read(ctx, name, limit)
	}
	return m.Store.Read(ctx, name, limit)
}

func (m mutant) Stat(ctx context.Context, name string) (records.Record, error) {
	if m.stat != nil {
		return m.stat(ctx, name)
	}
	return m.Store.Stat(ctx, name)
}

func (m mutant) Write(ctx context.Context, r records.Record) (string, error) {
	if m.write != nil {
		return m.write(ctx, r)
	}
	return m.Store.Write(ctx, r)
}

// writing is a mutant that changes what it writes.
func writing(change func(*records.Record)) func(records.Store) records.Store {
	return func(s records.Store) records.Store {
		return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
			change(&r)
			return s.Write(ctx, r)
		}}
	}
}

// renaming is a mutant that changes names.
func renaming(change func(string) string) func(records.Store) records.Store {
	return func(s records.Store) records.Store {
		return mutant{s,
			func(ctx context.Context, name string, limit int) (records.Record, error) {
				r, err := s.Read(ctx, change(name), limit)
				r.Name = name
				return r, err
			},
			func(ctx context.Context, name string) (records.Record, error) {
				r, err := s.Stat(ctx, change(name))
				r.Name = name
				return r, err
			},
			func(ctx context.Context, r records.Record) (string, error) {
				r.Name = change(r.Name)
				return s.Write(ctx, r)
			},
		}
	}
}

// unfenced writes over whatever there is.
func unfenced(s records.Store) records.Store {
	return writing(func(r *records.Record) { r.ETag = records.Any })(s)
}

// halfFenced fences what replaces and not what creates.
func halfFenced(s records.Store) records.Store {
	return writing(func(r *records.Record) {
		if r.ETag == "" {
			r.ETag = records.Any
		}
	})(s)
}

// checkThenAct compares and writes in two steps.
func checkThenAct(s records.Store) records.Store {
	return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
		there, err := s.Stat(ctx, r.Name)
		if err != nil && !errors.Is(err, records.ErrNotFound) || there.ETag != r.ETag && r.ETag != records.Any {
			return "", errors.Join(err, records.ErrConflict)
		}
		time.Sleep(time.Millisecond) // for somebody else to come in between
		return unfenced(s).Write(ctx, r)
	}}
}

// staleStat answers with the values before the last ones.
func staleStat(s records.Store) records.Store {
	var mu sync.Mutex
	var last, before map[string]string
	return mutant{
		Store: s,
		stat: func(ctx context.Context, name string) (records.Record, error) {
			r, err := s.Stat(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			r.Values = before
			return r, err
		},
		write: func(ctx context.Context, r records.Record) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			last, before = r.Values, last
			return s.Write(ctx, r)
		},
	}
}

// contentETag makes equal records have equal tags.
func contentETag(s records.Store) records.Store {
	var mu sync.Mutex
	tags := map[string]string{} // real ones by ours
	return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if tag, ok := tags[r.ETag]; ok {
			r.ETag = tag
		}
		ours := fmt.Sprint(r.Values, r.Content)
		etag, err := s.Write(ctx, r)
		tags[ours] = etag
		return ours, err
	}}
}

func TestMutants(t *testing.T) {
	for _, m := range []struct {
		name, check string
		broken      func(records.Store) records.Store
	}{
		{"If-Match ignored", "Replace", unfenced},
		{"If-None-Match ignored", "Replace", halfFenced},
		{"If-None-Match ignored", "OneWinner", halfFenced},
		{"check, then act", "OneWinner", checkThenAct},
		{"a gone record is created again", "Absent", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				if _, err := s.Stat(ctx, r.Name); errors.Is(err, records.ErrNotFound) {
					r.ETag = ""
				}
				return s.Write(ctx, r)
			}}
		}},
		{"ETag of the content", "Replace", contentETag},
		{"ETag stays", "Replace", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				_, err := s.Write(ctx, r)
				return "same", err
			}}
		}},
		{"Any creates nothing", "Any", writing(func(r *records.Record) {
			if r.ETag == records.Any {
				r.ETag = "unknown"
			}
		})},
		{"values: stale", "Fresh", staleStat},
		{"values: not kept", "Replace", writing(func(r *records.Record) { r.Values = nil })},
		{"values: added to what is there", "Values", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				there, _ := s.Stat(ctx, r.Name)
				for name, value := range r.Values {
					if there.Values == nil {
						there.Values = map[string]string{}
					}
					there.Values[name] = value
				}
				r.Values = there.Values
				return s.Write(ctx, r)
			}}
		}},
		{"content: dropped with values", "Values", writing(func(r *records.Record) {
			if r.Content == nil {
				r.Content = []byte{}
			}
		})},
		{"content: dropped", "Content", writing(func(r *records.Record) { r.Content = nil })},
		{"content: cut off", "Content", writing(func(r *records.Record) { r.Content = r.Content[:min(len(r.Content), 1<<20)] })},
		{"content: text", "Content", writing(func(r *records.Record) { r.Content = []byte(strings.ToValidUTF8(string(r.Content), "?")) })},
		{"content: all of it", "Content", func(s records.Store) records.Store {
			return mutant{Store: s, read: func(ctx context.Context, name string, _ int) (records.Record, error) {
				return s.Read(ctx, name, 1<<30)
			}}
		}},
		{"names: the last part", "Names", renaming(func(n string) string { return n[strings.LastIndex(n, "/")+1:] })},
		{"names: cut off", "Names", renaming(func(n string) string { return n[:min(len(n), 47)] })},
		{"clock: the reader's zero", "Clock", func(s records.Store) records.Store {
			return mutant{Store: s, stat: func(ctx context.Context, name string) (records.Record, error) {
				r, err := s.Stat(ctx, name)
				r.Now = time.Time{}
				return r, err
			}}
		}},
		{"clock: rounded up", "Clock", func(s records.Store) records.Store {
			return mutant{Store: s, stat: func(ctx context.Context, name string) (records.Record, error) {
				r, err := s.Stat(ctx, name)
				r.Now = r.Now.Add(2 * records.Resolution)
				return r, err
			}}
		}},
		{"context ignored: read", "EndedContext", func(s records.Store) records.Store {
			return mutant{Store: s, read: func(ctx context.Context, name string, limit int) (records.Record, error) {
				return s.Read(context.WithoutCancel(ctx), name, limit)
			}}
		}},
		{"context ignored: write", "EndedContext", func(s records.Store) records.Store {
			return mutant{Store: s, write: func(ctx context.Context, r records.Record) (string, error) {
				return s.Write(context.WithoutCancel(ctx), r)
			}}
		}},
	} {
		for _, c := range checks {
			if c.name != m.check {
				continue
			}
			t.Run(m.name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				r := &recorder{T: t}
				store := m.broken(&records.Memory{})
				done := make(chan struct{})
				go func() { // which Fatalf ends
					defer close(done)
					c.run(r, func() records.Store { return store })
				}()
				<-done
				if len(r.failures) == 0 {
					t.Fatalf("%s does not notice", c.name)
				}
				t.Logf("%d failures, the first: %s", len(r.failures), r.failures[0])
			})
		}
	}
}

// A recorder takes down what would have failed a test.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
