// Package devhub is an Event Hubs namespace in memory.
package devhub
