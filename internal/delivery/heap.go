package delivery

import "container/heap"

// An item is an element of a heapOf.
type item[T any] interface {
	comparable
	less(T) bool
	slot() *int32
}

// A heapOf holds elements in their order. Each knows its slot: its index plus 1, or 0 while it is in no heap.
type heapOf[T item[T]] struct{ all []T }

func (h *heapOf[T]) add(e T)    { heap.Push(h, e) }
func (h *heapOf[T]) remove(e T) { heap.Remove(h, int(*e.slot()-1)) }
func (h *heapOf[T]) pop() T     { return heap.Pop(h).(T) }

// first returns the first element, zero if there is none.
func (h *heapOf[T]) first() (e T) {
	if len(h.all) > 0 {
		e = h.all[0]
	}
	return e
}

// The rest implements heap.Interface.

func (h *heapOf[T]) Len() int           { return len(h.all) }
func (h *heapOf[T]) Less(i, j int) bool { return h.all[i].less(h.all[j]) }

func (h *heapOf[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	*h.all[i].slot(), *h.all[j].slot() = int32(i+1), int32(j+1)
}

func (h *heapOf[T]) Push(e any) {
	h.all = append(h.all, e.(T))
	*e.(T).slot() = int32(len(h.all))
}

func (h *heapOf[T]) Pop() any {
	last := len(h.all) - 1
	e := h.all[last]
	clear(h.all[last:])
	h.all = h.all[:last]
	*e.slot() = 0

	return e
}
