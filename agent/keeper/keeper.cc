// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/keeper/adopted_process.h"
#include "agent/keeper/init/pid_namespace.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxStrangers = 16;
constexpr std::uint64_t kTerminationGraceMs = 10'000;  // when the keeper itself is told to end by SIGTERM

Result<UniqueFd> make_signal_fd() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  if (::sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return Error::from_errno("Blocking signals");
  UniqueFd fd(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) return Error::from_errno("Making a signal descriptor");
  return fd;
}

// As waitpid would tell it.
int wait_status_of(const siginfo_t& info) {
  const int status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
  return info.si_code == CLD_DUMPED ? status | 0x80 : status;
}

Result<RankProcess> take_process(const Config& config, const std::optional<Keeper::Restored>& restored,
                                 const std::string& socket_path, const std::string& log_path) {
  if (config.adopt) return RankProcess::foreign(config.adopt->pid);
  if (restored && config.adopted) return RankProcess::foreign(restored->pid);
  if (restored) return RankProcess::adopt(restored->pid);
  return RankProcess::start(config, socket_path, log_path);
}

}  // namespace

Result<Keeper> Keeper::create(Config config, const std::string& folder, std::optional<Restored> restored) {
  // Orphans of the program come to the keeper, so that the end of the job is the end of all of its processes.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  CKPT_TRY(signals, make_signal_fd());
  CKPT_TRY(deadline, Timer::create());
  CKPT_TRY(grace, Timer::create());
  CKPT_TRY(page, local::ControlPageMapping::create());
  const std::string socket_path = folder + "/keeper.sock";
  CKPT_TRY(listener, local::Listener::create(socket_path));
  UniqueFd foreign;
  if (config.adopt) {
    CKPT_TRY(opened, open_process(config.adopt->pid, config.adopt->start_ticks));
    foreign = std::move(opened);
  }
  CKPT_TRY(process, take_process(config, restored, socket_path, folder + "/out.log"));
  raise_descriptor_limit();  // after the program's start: it keeps its own
  const bool standby = config.role == local::Role::kStandby;
  const bool runs = config.adopt.has_value();
  Keeper keeper(Parts{std::move(config), folder, std::move(listener), std::move(page), std::move(signals),
                      std::move(deadline), std::move(grace), std::move(process), std::move(foreign),
                      restored ? std::move(restored->namespace_alive) : UniqueFd()});
  if (runs) keeper.phase_ = local::Phase::kRunning;
  if (keeper.parts_.config.adopted) keeper.session_pid_ = keeper.parts_.process.pid();
  if (restored) {
    keeper.phase_ = local::Phase::kDumped;
    keeper.memory_ = local::MemoryState::kReleased;
    keeper.restored_ = true;
  }
  if (standby) fault_point(FaultPoint::kKeeperStandbyStarted);
  return keeper;
}

Keeper::Keeper(Parts parts) : parts_(std::move(parts)), incarnation_(parts_.config.incarnation) {}

Result<void> Keeper::run() {
  while (!finished()) {
    CKPT_TRYV(run_once());
  }
  return ok();
}

bool Keeper::finished() const {
  if (shutdown_) return !agent_ || !agent_.wants_to_write();
  return phase_ == local::Phase::kExited && !agent_;
}

Result<void> Keeper::run_once() {
  // A peer is not read while the other side cannot take more; one with nothing to wait for is left out, or
  // its hang-up would wake for ever.
  const auto watch = [](const Peer& peer, const Peer& other) {
    const bool blocked = other && other.is_full();
    const int events = (blocked ? 0 : POLLIN) | (peer && peer.wants_to_write() ? POLLOUT : 0);
    return pollfd{peer && events != 0 ? peer.fd() : -1, static_cast<short>(events), 0};
  };
  std::vector<pollfd> watched = {
      {parts_.signals.get(), POLLIN, 0},
      {parts_.deadline.fd(), POLLIN, 0},
      {parts_.grace.fd(), POLLIN, 0},
      {strangers_.size() < kMaxStrangers ? parts_.listener.fd() : -1, POLLIN, 0},
      watch(rank_, agent_),
      watch(agent_, rank_),
      {reattach_ ? reattach_->fd() : -1, POLLIN, 0},
      {phase_ != local::Phase::kExited && parts_.foreign ? parts_.foreign.get() : -1, POLLIN, 0}};
  const std::size_t fixed = watched.size();
  const std::size_t others = others_.size();
  for (const Session& session : others_) watched.push_back({session.peer.fd(), POLLIN, 0});
  for (const Peer& peer : strangers_) watched.push_back({peer.fd(), POLLIN, 0});
  if (::poll(watched.data(), watched.size(), -1) < 0) {
    if (errno == EINTR) return ok();
    return Error::from_errno("poll");
  }
  if (watched[1].revents != 0 && parts_.deadline.take_due()) on_deadline();
  if (watched[4].revents != 0 && rank_) read_rank();
  if (watched[0].revents != 0) on_signals();
  if (watched[7].revents != 0) rank_changed(kUnknownStatus);
  if (watched[2].revents != 0 && parts_.grace.take_due()) on_grace_over();
  for (std::size_t i = watched.size(); i-- > fixed + others;) {
    if (watched[i].revents != 0) greet(i - fixed - others);
  }
  for (std::size_t i = fixed + others; i-- > fixed;) {
    const std::size_t at = i - fixed;
    if (watched[i].revents != 0 && at < others_.size() && others_[at].peer.fd() == watched[i].fd)
      read_other(at);
  }
  if (watched[5].revents != 0 && agent_ && agent_.fd() == watched[5].fd) read_agent();
  if (watched[3].revents != 0) accept_peers(parts_.listener);
  if (watched[6].revents != 0 && reattach_) accept_peers(*reattach_);
  return ok();
}

void Keeper::accept_peers(local::Listener& listener) {
  while (strangers_.size() < kMaxStrangers) {
    Result<std::optional<local::Socket>> accepted = listener.accept();
    if (!accepted.has_value()) return;  // a foreign user's connection is closed already
    if (!accepted.assume_value()) return;
    strangers_.emplace_back(std::move(*accepted.assume_value()));
  }
}

// The first message says who a stranger is.
void Keeper::greet(std::size_t index) {
  Peer peer = std::move(strangers_[index]);
  strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
  Result<local::Received> received = peer.receive();
  if (!received.has_value() || received.assume_value().transfer == local::Transfer::kClosed) return;
  if (received.assume_value().transfer == local::Transfer::kNothing) {
    strangers_.push_back(std::move(peer));
    return;
  }
  const local::Message& message = received.assume_value().message;
  if (const auto* hello = std::get_if<local::Hello>(&message.body))
    return welcome_rank(std::move(peer), *hello);
  if (!std::holds_alternative<local::Attach>(message.body)) return;
  detach_agent();
  agent_ = std::move(peer);
  answer(message.request, status());
}

void Keeper::on_signals() {
  signalfd_siginfo info{};
  bool terminate = false;
  while (::read(parts_.signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    terminate = terminate || info.ssi_signo != SIGCHLD;
  }
  on_children();
  if (terminate && phase_ != local::Phase::kExited) on_stop(0, kTerminationGraceMs);
}

void Keeper::on_children() {
  for (;;) {
    // How a program under an init has ended can be read only while that is not reaped.
    siginfo_t ended{};
    const auto rank = static_cast<id_t>(parts_.process.pid());
    const bool has_init = !parts_.config.init.empty() || parts_.config.restore.has_value();
    const bool rank_ended = has_init && phase_ != local::Phase::kExited &&
                            ::waitid(P_PID, rank, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                            ended.si_pid != 0;
    const int program = rank_ended ? program_status(parts_.process.pid(), wait_status_of(ended)) : 0;
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid <= 0) return;
    if (pid == saver_) on_saver_ended(status);
    if (pid == parts_.process.pid())
      rank_changed(rank_ended && !WIFSTOPPED(status) && !WIFCONTINUED(status) ? program : status);
  }
}

void Keeper::rank_changed(int status) {
  if (status != kUnknownStatus && WIFSTOPPED(status)) return rank_stopped();
  if (status != kUnknownStatus && WIFCONTINUED(status)) return rank_continued();
  if (Result<void> done = rank_exited(status); !done.has_value()) {
    ::dprintf(2, "%s\n", done.assume_error().to_string().c_str());
  }
}

void Keeper::rank_stopped() {
  if (!lease_over_ || stop_reported_) return;
  stop_reported_ = true;
  answer(0, local::RankStopped{now_ns()});
}

void Keeper::rank_continued() {
  if (!lease_over_) return;
  stop_reported_ = false;  // somebody else's SIGCONT does not bring a lease back
  parts_.process.signal_group(SIGSTOP);
}

Result<void> Keeper::rank_exited(int status) {
  if (rank_) read_rank();  // what it has said before it ended comes before its end
  // Whatever the program has left behind; what an adopted one has started here is not ours to end.
  if (!parts_.foreign) parts_.process.signal_group(SIGKILL);
  parts_.namespace_alive.reset();
  parts_.deadline.clear();
  parts_.grace.clear();
  if (is_saving()) last_save_ = LastSave::kOver;
  wait_status_ = status;
  phase_ = local::Phase::kExited;
  nlohmann::json report{{"job", parts_.config.job},
                        {"incarnation", incarnation_},
                        {"role", role_name(parts_.config.role)},
                        {"pid", parts_.process.pid()},
                        {"state", "exited"},
                        {"ended_by_keeper", ended_by_keeper_},
                        {"moved", moved_},
                        {"ran", resumed_ns_ != 0},
                        {"ended_at_ms", wall_clock_ms()}};
  if (status == kUnknownStatus)
    report["unknown"] = true;
  else if (WIFEXITED(status))
    report["exit_code"] = WEXITSTATUS(status);
  else if (WIFSIGNALED(status))
    report["signal"] = WTERMSIG(status);
  if (!last_save_said_.empty()) report["last_save"] = last_save_said_;
  Result<void> written = write_file_durably(parts_.folder + "/status.json", report.dump() + "\n");
  rank_ = Peer();
  others_.clear();
  export_request_ = 0;
  exported_.clear();
  arrived_.clear();
  reattach_.reset();
  if (pending_.type != local::MessageType{})
    finish(to_failed(pending_.type, Error(ErrorCode::kUnavailable, "The program has ended")));
  answer(0, local::RankExited{status, ended_by_keeper_ ? 1u : 0u});
  return written;
}

void Keeper::set_deadline(Nanos deadline_ns) {
  deadline_ns_ = deadline_ns;
  if (phase_ == local::Phase::kExited) return;
  if (deadline_ns != local::kNoDeadline && deadline_ns <= now_ns()) return on_deadline();
  if (deadline_ns == local::kNoDeadline) {
    parts_.deadline.clear();
  } else {
    parts_.deadline.set(deadline_ns);
  }
  if (!lease_over_) return;
  lease_over_ = false;
  parts_.page.set_gate(false);
  if (is_transparent()) send_rank({0, 0, local::RankContinued{now_ns()}});
  // What was dumped stays stopped, whatever its lease, until it is called back.
  const bool stays = phase_ == local::Phase::kDumped && !reattach_;
  if (!stays) parts_.process.signal_group(SIGCONT);
  if (!stop_reported_) return;
  stop_reported_ = false;
  answer(0, local::RankContinued{now_ns()});
}

void Keeper::on_deadline() {
  if (phase_ == local::Phase::kExited) return;
  if (lease_over_) return parts_.foreign ? look_whether_stopped() : void();
  lease_over_ = true;
  parts_.page.set_gate(true);
  if (is_transparent()) send_rank({0, 0, local::RankStopped{now_ns()}});
  parts_.process.signal_group(SIGSTOP);
  if (parts_.foreign) look_whether_stopped();
}

void Keeper::on_grace_over() {
  if (is_saving()) return on_last_save_late();
  kill_rank();
}

}  // namespace ckpt::keeper
