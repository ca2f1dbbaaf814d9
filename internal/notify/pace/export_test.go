package pace

import "time"

// Learned reports whether the receiver refused messages lately because of their number.
func (p *Pace) Learned() bool { return p.rate > 0 }

// Rate returns how many messages a second go at present, 0 if nothing limits them.
func (p *Pace) Rate() float64 {
	if every := p.every(); every > 0 {
		return 1 / every.Seconds()
	}
	return 0
}

// Waits returns the end of the wait that the receiver asked for. It is not after now if there is none.
func (p *Pace) Waits() time.Duration { return p.wait }
