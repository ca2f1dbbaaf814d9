package pace

// Learned reports whether the receiver refused messages lately because of their number.
func (p *Pace) Learned() bool { return p.rate > 0 }

// Rate returns how many messages a second go at present, 0 if nothing limits them.
func (p *Pace) Rate() float64 {
	if every := p.every(); every > 0 {
		return 1 / every.Seconds()
	}
	return 0
}
