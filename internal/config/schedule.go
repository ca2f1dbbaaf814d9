package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/robfig/cron/v3"
)

// ParseSchedule reads a cron expression of five fields, or a descriptor such as
// @daily, in the local time zone unless it begins with CRON_TZ=<zone>.
func ParseSchedule(expression string) (cron.Schedule, error) {
	var s cron.Schedule
	var err error
	if zone := strings.HasPrefix(expression, "TZ=") || strings.HasPrefix(expression, "CRON_TZ="); zone && !strings.Contains(expression, " ") {
		err = errors.New("the time zone is not followed by a schedule") // cron would panic
	} else {
		s, err = cron.ParseStandard(expression)
	}
	if err != nil {
		return nil, fmt.Errorf("cron expression %q: %w: write five fields such as \"0 8 * * *\" (every day at 8), or @daily", expression, err)
	}
	return s, nil
}
