// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/health.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kMaxVerdicts = 1024;
constexpr std::size_t kLongestReason = 1000;
constexpr std::chrono::seconds kResendAfter{1};
// The limits on the findings that are accepted from one node within kAcceptanceSpan.
constexpr std::chrono::seconds kAcceptanceSpan{60};
constexpr std::size_t kMaxAccepted = 600;
constexpr std::size_t kMaxAcceptedBytes = std::size_t{4} << 20;
constexpr const char* kHealthSchema =
    "CREATE TABLE IF NOT EXISTS findings (id INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, number "
    "INTEGER "
    "NOT NULL, time_ms INTEGER NOT NULL, finding BLOB NOT NULL, acted INTEGER NOT NULL, UNIQUE (node, "
    "number, time_ms))";

std::string text_of(const std::string& node, const wire::HealthFinding& f) {
  std::string text = node + ":" + std::to_string(f.gpu) + " " + f.reason;
  if (f.xid != 0) text += fmt::format(" (Xid {}, {})", f.xid, f.source);
  if (f.cordon) text += "; cordon";
  for (const wire::JobVerdict& verdict : f.jobs)
    if (verdict.outcome != wire::HealthOutcome::kNone)
      text += "; " + job_text(verdict.job) + ": " + verdict.reason;
  return text;
}

void bound(std::string& text) {
  if (text.size() > kLongestReason) text.resize(kLongestReason);
}

// The stored values of a decided finding: the policy acted on it, or was paused.
constexpr std::int64_t kActed = 1;
constexpr std::int64_t kPaused = 2;

}  // namespace

HealthTable::HealthTable(Dependencies deps)
    : deps_(std::move(deps)), changed_(deps_.executor), resend_(deps_.executor) {
  deps_.frames.subscribe<wire::HealthReport>(
      wire::FrameType::kHealthReport,
      [this](const Node& node, const wire::HealthReport& report) { on_report(node, report); });
  deps_.policy.changed().subscribe([this] {
    for (const auto& [name, paused] : deps_.policy.nodes()) send_settings(name, known_number(name));
  });
}

Result<void> HealthTable::load() {
  CKPT_TRYV(deps_.store.database().execute(kHealthSchema));
  CKPT_TRY(statement,
           deps_.store.database().prepare("SELECT id, node, finding, acted FROM findings ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    Finding& finding = findings_.emplace_back();
    finding.row = statement.integer(0);
    finding.node = statement.text(1);
    CKPT_TRY(reported, wire::decode<wire::HealthFinding>(statement.blob(2)));
    finding.reported = std::move(reported);
    finding.acted = statement.integer(3) != 0;
    finding.paused = statement.integer(3) == kPaused;
    index(finding);
  }
}

// Sends the settings to a node that has connected. No settings are sent to an agent that has never reported
// and was never paused. Such an agent uses the defaults, and an older agent does not know the message.
void HealthTable::on_node_ready(const Node& node) {
  const std::uint64_t known = known_number(node.row.name);
  if (known != 0 || deps_.policy.was_named(node.row.name)) send_settings(node.row.name, known);
}

void HealthTable::on_report(const Node& node, const wire::HealthReport& report) {
  const std::string name = node.row.name;
  std::uint64_t known = 0;
  bool has_new = false;
  for (const wire::HealthFinding& finding : report.findings) {
    const std::uint64_t number = finding.number;
    // After the node's quota is used up, the remaining findings are not acknowledged, so that their node
    // reports them again.
    if (!is_known(name, finding) && !consume_quota(name, finding)) break;
    auto stored = store(name, finding);
    if (!stored) {
      spdlog::error("finding {} of {} was not stored: {}", number, name, stored.error().to_string());
      break;
    }
    known = number;
    has_new = has_new || *stored;
  }
  if (known != 0) send_settings(name, known);
  if (has_new) changed_.notify();
}

bool HealthTable::consume_quota(const std::string& node, const wire::HealthFinding& finding) {
  const auto now = std::chrono::steady_clock::now();
  Accepted& accepted = accepted_[node];
  if (now - accepted.since >= kAcceptanceSpan) {
    accepted = Accepted();
    accepted.since = now;
  }
  const std::size_t bytes = wire::encode(finding).size();
  if (accepted.count >= kMaxAccepted || accepted.bytes + bytes > kMaxAcceptedBytes) {
    if (accepted.count != kMaxAccepted + 1)
      spdlog::warn(
          "node {} reports more than {} findings or {} bytes of them within a minute: further ones are "
          "delayed",
          node, kMaxAccepted, kMaxAcceptedBytes);
    accepted.count = kMaxAccepted + 1;
    return false;
  }
  ++accepted.count;
  accepted.bytes += bytes;
  return true;
}

// Stores a finding. Returns false if the finding was already known.
Result<bool> HealthTable::store(const std::string& node, wire::HealthFinding finding) {
  if (is_known(node, finding)) return false;
  bound(finding.reason);
  bound(finding.source);
  bound(finding.gpu_uuid);
  if (finding.jobs.size() > kMaxVerdicts) finding.jobs.resize(kMaxVerdicts);
  for (wire::JobVerdict& verdict : finding.jobs) bound(verdict.reason);
  CKPT_TRY(statement,
           deps_.store.database().prepare(
               "INSERT INTO findings (node, number, time_ms, finding, acted) VALUES (?1, ?2, ?3, ?4, 0)"));
  statement.bind(1, node).bind(2, static_cast<std::int64_t>(finding.number)).bind(3, finding.time_ms);
  statement.bind_blob(4, wire::encode(finding));
  CKPT_TRYV(statement.run());
  Finding& stored = findings_.emplace_back();
  stored.row = deps_.store.database().last_row_id();
  stored.node = node;
  stored.reported = std::move(finding);
  index(stored);
  deps_.events.add("gpu-health", text_of(node, stored.reported), node);
  return true;
}

void HealthTable::index(const Finding& finding) {
  known_.emplace(finding.node, finding.reported.number, finding.reported.time_ms);
  newest_[finding.node] = {finding.row, finding.reported.number};
  if (finding.is_suspicion()) suspicions_[{finding.node, finding.reported.gpu}] = finding.row;
  if (!finding.acted) fresh_.insert(finding.row);
}

const Finding* HealthTable::newest_suspicion(const Place& place) const {
  const auto row = suspicions_.find({place.node, place.gpu});
  if (row == suspicions_.end()) return nullptr;
  const auto at = std::ranges::lower_bound(findings_, row->second, {}, &Finding::row);
  return at == findings_.end() || at->row != row->second ? nullptr : &*at;
}

bool HealthTable::is_known(const std::string& node, const wire::HealthFinding& finding) const {
  return known_.contains({node, finding.number, finding.time_ms});
}

// Returns the number of the newest finding, not the largest number, because the node may restart its count.
std::uint64_t HealthTable::known_number(const std::string& node) const {
  const auto newest = newest_.find(node);
  return newest == newest_.end() ? 0 : newest->second.second;
}

void HealthTable::send_settings(const std::string& node, std::uint64_t known_number) {
  wire::HealthSettings settings;
  settings.known_number = known_number;
  settings.paused = deps_.policy.is_paused(node);
  deps_.calls.send(node, settings, [this, node] { send_later(node); });
}

// Sends the settings to the node after kResendAfter, with their values at that time.
void HealthTable::send_later(const std::string& node) {
  const bool waits = !pending_settings_.empty();
  pending_settings_.insert(node);
  if (waits) return;
  resend_.expires_after(kResendAfter);
  resend_.async_wait([this](boost::system::error_code code) {
    if (code) return;
    for (const std::string& name : std::exchange(pending_settings_, {}))
      send_settings(name, known_number(name));
  });
}

Result<void> HealthTable::store_acted(const Finding& finding, bool paused) {
  CKPT_TRY(statement, deps_.store.database().prepare("UPDATE findings SET acted = ?2 WHERE id = ?1"));
  return statement.bind(1, finding.row).bind(2, paused ? kPaused : kActed).run();
}

std::vector<Finding> HealthTable::fresh() const {
  std::vector<Finding> found;
  for (const std::int64_t row : fresh_)
    found.push_back(*std::ranges::lower_bound(findings_, row, {}, &Finding::row));
  return found;
}

void HealthTable::acted(std::int64_t row, bool paused) {
  const auto at = std::ranges::lower_bound(findings_, row, {}, &Finding::row);
  if (at == findings_.end() || at->row != row) return;
  at->acted = true;
  fresh_.erase(row);
  if (!paused) return;
  at->paused = true;
  const Place place = at->place();
  suspicions_.erase({place.node, place.gpu});
  for (const Finding& finding : findings_)
    if (finding.place() == place && finding.is_suspicion())
      suspicions_[{place.node, place.gpu}] = finding.row;
}

// Removes old findings. The newest finding of every node stays, because it shows which findings the node need
// not report again.
void HealthTable::prune(const Retention& retention) {
  const std::size_t surplus = findings_.size() - std::min(findings_.size(), retention.count);
  std::set<std::int64_t> over;
  for (std::size_t i = 0; i < findings_.size() && over.size() < Retention::kBatch; ++i) {
    const Finding& finding = findings_[i];
    const bool old = i < surplus || finding.reported.time_ms < retention.since_ms;
    if (old && finding.acted && newest_[finding.node].first != finding.row) over.insert(finding.row);
  }
  if (over.empty()) return;
  if (auto removed = remove(over); !removed)
    return spdlog::error("{} findings were not removed: {}", over.size(), removed.error().to_string());
  for (const Finding& finding : findings_)
    if (over.contains(finding.row))
      known_.erase({finding.node, finding.reported.number, finding.reported.time_ms});
  std::erase_if(findings_, [&](const Finding& finding) { return over.contains(finding.row); });
}

Result<void> HealthTable::remove(const std::set<std::int64_t>& rows) {
  CKPT_TRY(transaction, Transaction::begin(deps_.store.database()));
  for (const std::int64_t row : rows) {
    CKPT_TRY(statement, deps_.store.database().prepare("DELETE FROM findings WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, row).run());
  }
  return transaction.commit();
}

}  // namespace ckpt::coordinator
