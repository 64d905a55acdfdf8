package admin

import (
	"github.com/prometheus/client_golang/prometheus"
)

// namespace stands before the name of every metric of ours.
const namespace = "sluice_"

// Kind is what a metric's numbers mean.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota // a state: goes up and down
	Counter               // only ever grows while the process lives
	Histogram             // counts of values by size
)

// Family is one metric at one moment, with all of its series. Whoever counts keeps numbers of its
// own, cheap to raise; families are made of them only when somebody asks.
type Family struct {
	Name   string // without the namespace; counters end in _total
	Help   string // one sentence
	Kind   Kind
	Labels []string // names, the same for all series
	Series []Series
}

// Series is one line of a family.
type Series struct {
	Labels []string // values, as many as the family has names
	Value  float64  // of a gauge or a counter
	Dist   *Dist    // of a histogram
}

// Dist is a distribution of values.
type Dist struct {
	Count uint64
	Sum   float64

	// Bounds are upper ones, ascending; Counts are how many values were at most that large, so that
	// each is no less than the one before it.
	Bounds []float64
	Counts []uint64
}

// One is a family of a single series without labels.
func One(kind Kind, name, help string, value float64) Family {
	return Family{Name: name, Help: help, Kind: kind, Series: []Series{{Value: value}}}
}

// collector is all families for the library that prints them.
type collector struct{ gather func() []Family }

// Describe implements prometheus.Collector: what there is shows when it is asked for.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, f := range c.gather() {
		desc := prometheus.NewDesc(namespace+f.Name, f.Help, f.Labels, nil)
		for _, s := range f.Series {
			m, err := s.metric(desc, f.Kind)
			if err != nil {
				m = prometheus.NewInvalidMetric(desc, err)
			}
			out <- m
		}
	}
}

func (s *Series) metric(desc *prometheus.Desc, kind Kind) (prometheus.Metric, error) {
	switch {
	case kind == Histogram && s.Dist != nil:
		buckets := make(map[float64]uint64, len(s.Dist.Bounds))
		for i, b := range s.Dist.Bounds {
			buckets[b] = s.Dist.Counts[i]
		}
		return prometheus.NewConstHistogram(desc, s.Dist.Count, s.Dist.Sum, buckets, s.Labels...)
	case kind == Counter:
		return prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, s.Labels...)
	}
	return prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, s.Labels...)
}
