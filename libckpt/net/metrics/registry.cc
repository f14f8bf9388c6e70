// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <sstream>

#include "libckpt/net/metrics/label_text.h"

namespace ckpt::metrics {
namespace {

prometheus::Labels labels_of(const Names& names, const Values& values) {
  prometheus::Labels labels;
  for (std::size_t i = 0; i < names.size() && i < values.size(); ++i)
    labels[names[i]] = label_text(values[i]);
  return labels;
}

prometheus::MetricType type_of(Kind kind) {
  return kind == Kind::kCounter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kGauge:
      return "gauge";
    case Kind::kHistogram:
      return "histogram";
  }
  return "unknown";
}

void Counters::add(const Values& values, double by) {
  family_->Add(labels_of(labels_, values)).Increment(by);
}

void Histograms::add(const Values& values, double what) {
  family_->Add(labels_of(labels_, values), bounds_).Observe(what);
}

void Histograms::prepare(const Values& values) {
  family_->Add(labels_of(labels_, values), bounds_);
}

void Series::add(const Values& values, double value) {
  prometheus::ClientMetric& metric = family_.metric.emplace_back();
  for (std::size_t i = 0; i < descriptor_.labels.size() && i < values.size(); ++i)
    metric.label.push_back({descriptor_.labels[i], label_text(values[i])});
  (descriptor_.kind == Kind::kCounter ? metric.counter.value : metric.gauge.value) = value;
}

Registry::Registry(std::map<std::string, std::string> always)
    : always_(std::move(always)), counted_(std::make_unique<prometheus::Registry>()) {}

Registry::~Registry() = default;

const Descriptor& Registry::describe(Kind kind, std::string name, std::string help, const Names& labels) {
  Descriptor& descriptor = descriptors_.emplace_back();
  descriptor.kind = kind;
  descriptor.name = std::move(name);
  descriptor.help = std::move(help);
  descriptor.labels = labels;
  return descriptor;
}

Counters Registry::counter(std::string name, std::string help, Names labels) {
  const Descriptor& d = describe(Kind::kCounter, std::move(name), std::move(help), labels);
  return {prometheus::BuildCounter().Name(d.name).Help(d.help).Labels(always_).Register(*counted_),
          std::move(labels)};
}

Histograms Registry::histogram(std::string name, std::string help, Names labels, std::vector<double> bounds) {
  const Descriptor& d = describe(Kind::kHistogram, std::move(name), std::move(help), labels);
  return {prometheus::BuildHistogram().Name(d.name).Help(d.help).Labels(always_).Register(*counted_),
          std::move(labels), std::move(bounds)};
}

void Registry::observe(Kind kind, std::string name, std::string help, Names labels, Read read) {
  Observed observed;
  observed.descriptor = describe(kind, std::move(name), std::move(help), labels);
  observed.read = std::move(read);
  observed_.push_back(std::move(observed));
}

std::string Registry::page() const {
  std::vector<prometheus::MetricFamily> families = counted_->Collect();
  for (const Observed& observed : observed_) {
    prometheus::MetricFamily family;
    family.name = observed.descriptor.name;
    family.help = observed.descriptor.help;
    family.type = type_of(observed.descriptor.kind);
    Series series(family, observed.descriptor);
    observed.read(series);
    for (prometheus::ClientMetric& metric : family.metric) {
      for (const auto& [name, value] : always_) metric.label.push_back({name, value});
    }
    families.push_back(std::move(family));
  }
  std::erase_if(families, [](const prometheus::MetricFamily& family) { return family.metric.empty(); });
  std::sort(
      families.begin(), families.end(),
      [](const prometheus::MetricFamily& a, const prometheus::MetricFamily& b) { return a.name < b.name; });
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return std::move(out).str();
}

}  // namespace ckpt::metrics
