package admin_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"alertworker/internal/ops/admin"
)

// Times on the page and about a device are in the zone of those who read them; only the ones for programs are UTC.
func TestZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := time.FixedZone("CET", 3600)
		w := newWorld(t, ruled, func(o *admin.Options) { o.Zone = zone })
		w.recorder.Zone = zone
		w.busy(3)
		w.alarming()
		said := regexp.MustCompile(`(?s)<script.*?</script>|<[^>]*>`).ReplaceAllString(w.do(http.MethodGet, "/").Body.String(), " ")
		said += w.authorized(http.MethodGet, "/devices/oven").Body.String()
		if strings.Contains(said, " UTC") || strings.Count(said, " CET") < 3 {
			for _, line := range regexp.MustCompile(`.{40} UTC.{20}`).FindAllString(said, -1) {
				t.Errorf("it says %q", line)
			}
			t.Errorf("%d times in CET", strings.Count(said, " CET"))
		}
	})
}
