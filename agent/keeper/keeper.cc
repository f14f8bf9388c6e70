// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "agent/keeper/exit_report.h"
#include "agent/keeper/init/pid_namespace.h"
#include "agent/keeper/rank/adopted_process.h"
#include "agent/keeper/rank/rank_clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr std::size_t kMaxUnauthenticatedPeers = 16;
constexpr std::uint64_t kTerminationGraceMs = 10'000;  // grace for the rank when the keeper itself receives
                                                       // SIGTERM

Result<UniqueFd> make_signal_fd() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  if (::sigprocmask(SIG_BLOCK, &wanted, nullptr) != 0) return Error::from_errno("Cannot block signals");
  UniqueFd fd(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) return Error::from_errno("Cannot create a signal descriptor");
  return fd;
}

bool is_allowed_in_last_save(MessageType type) {
  return type == MessageType::kAttach || type == MessageType::kStop || type == MessageType::kKill ||
         type == MessageType::kSetDeadline;
}

// Returns the status in the form that waitpid uses.
int wait_status_of(const siginfo_t& info) {
  const int status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
  return info.si_code == CLD_DUMPED ? status | 0x80 : status;
}

Result<RankProcess> make_process(const Config& config, const std::optional<Keeper::Restored>& restored,
                                 const std::string& socket_path, const std::string& log_path) {
  if (config.adopt) return RankProcess::foreign(config.adopt->pid);
  if (restored && config.adopted) return RankProcess::foreign(restored->pid);
  if (restored) return RankProcess::adopt(restored->pid);
  return RankProcess::start(config, socket_path, log_path);
}

}  // namespace

Result<std::unique_ptr<Keeper>> Keeper::create(Config config, const std::string& folder,
                                               std::optional<Restored> restored) {
  // Orphans of the program become children of the keeper, so that the job ends only when all its processes
  // have exited.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  CKPT_TRY(signals, make_signal_fd());
  CKPT_TRY(deadline, Timer::create());
  CKPT_TRY(grace, Timer::create());
  CKPT_TRY(hold, Timer::create());
  CKPT_TRY(page, local::ControlPageMapping::create());
  std::optional<local::BarrierCount> barriers;
  if (config.gang) {
    CKPT_TRY(made, local::BarrierCount::create());
    barriers = std::move(made);
  }
  const std::string socket_path = folder + "/keeper.sock";
  CKPT_TRY(listener, local::Listener::create(socket_path));
  UniqueFd foreign;
  if (config.adopt) {
    CKPT_TRY(opened, open_process(config.adopt->pid, config.adopt->start_ticks));
    foreign = std::move(opened);
  }
  CKPT_TRY(process, make_process(config, restored, socket_path, folder + "/out.log"));
  raise_descriptor_limit();  // called after the program's start, so that the program keeps its own limit
  const bool standby = config.role == local::Role::kStandby;
  Parts parts{std::move(config),
              folder,
              std::move(listener),
              std::move(page),
              std::move(barriers),
              std::move(signals),
              std::move(process),
              std::move(foreign),
              restored ? std::move(restored->namespace_alive) : UniqueFd()};
  std::unique_ptr<Keeper> keeper(
      new Keeper(std::move(parts), {std::move(deadline), std::move(grace), std::move(hold)}));
  if (restored) keeper->accept_restored(std::move(restored->lazy_pages));
  if (standby) fault_point(FaultPoint::kKeeperStandbyStarted);
  return keeper;
}

Keeper::Keeper(Parts parts, Timers timers)
    : parts_(std::move(parts)),
      hold_(parts_.process, std::move(timers.hold)),
      lease_({std::move(timers.deadline), parts_.page, parts_.process, hold_, state_, rank_, agent_,
              is_transparent()}),
      memory_({state_, parts_.process, hold_, lease_, rank_, agent_, is_transparent()}),
      execution_({state_, parts_.page, rank_, agent_, lease_, hold_, memory_,
                  parts_.barriers ? &*parts_.barriers : nullptr, is_transparent()}),
      adopted_({state_, parts_.process, hold_, lease_, agent_}),
      termination_({parts_.config, parts_.process, state_, rank_, agent_, lease_, memory_, execution_,
                    std::move(timers.grace), is_transparent()}) {
  state_.incarnation = parts_.config.incarnation;
  if (parts_.config.adopt) state_.phase = Phase::kRunning;
  if (parts_.config.adopted) rank_.know(parts_.process.pid());
}

void Keeper::accept_restored(std::optional<LazyPages> pages) {
  if (pages) parts_.process.leave_out(pages->server());
  arriving_.begin(std::move(pages));
  state_.phase = Phase::kDumped;
  state_.restored = true;
  parts_.process.remember_stopped(parts_.config.restore->stopped);
  memory_.accept_restored();
}

Result<void> Keeper::run() {
  while (!finished()) {
    CKPT_TRYV(run_once());
  }
  return ok();
}

bool Keeper::finished() const {
  if (shutdown_) return !agent_.is_attached() || !agent_.peer().wants_to_write();
  return state_.phase == Phase::kExited && !agent_.is_attached();
}

Result<void> Keeper::run_once() {
  // A peer is not read while the other side cannot take more messages. A peer that waits for no event is left
  // out, because its hang-up would wake poll() endlessly.
  const auto watch = [](const Peer& peer, const Peer& other) {
    const bool blocked = other && other.is_full();
    const int events = (blocked ? 0 : POLLIN) | (peer && peer.wants_to_write() ? POLLOUT : 0);
    return pollfd{peer && events != 0 ? peer.fd() : -1, static_cast<short>(events), 0};
  };
  local::Listener* const reattach = memory_.reattach_listener();
  std::vector<pollfd> watched = {
      {parts_.signals.get(), POLLIN, 0},
      {lease_.fd(), POLLIN, 0},
      {termination_.fd(), POLLIN, 0},
      {unauthenticated_peers_.size() < kMaxUnauthenticatedPeers ? parts_.listener.fd() : -1, POLLIN, 0},
      watch(rank_.peer(), agent_.peer()),
      watch(agent_.peer(), rank_.peer()),
      {reattach != nullptr ? reattach->fd() : -1, POLLIN, 0},
      {state_.phase != Phase::kExited && parts_.foreign ? parts_.foreign.get() : -1, POLLIN, 0},
      {hold_.fd(), POLLIN, 0}};
  const std::size_t fixed = watched.size();
  const std::size_t others = rank_.others().size();
  for (const RankLink::Session& session : rank_.others()) watched.push_back({session.peer.fd(), POLLIN, 0});
  for (const Peer& peer : unauthenticated_peers_) watched.push_back({peer.fd(), POLLIN, 0});
  if (::poll(watched.data(), watched.size(), -1) < 0) {
    if (errno == EINTR) return ok();
    return Error::from_errno("poll");
  }
  if (watched[1].revents != 0) lease_.on_timer();
  if (watched[4].revents != 0 && rank_.is_open()) rank_.read();
  if (watched[0].revents != 0) on_signals();
  if (watched[7].revents != 0) rank_changed(kUnknownStatus);
  if (watched[2].revents != 0) termination_.on_timer();
  if (watched[8].revents != 0) on_hold_limit();
  for (std::size_t i = watched.size(); i-- > fixed + others;) {
    if (watched[i].revents != 0) greet(i - fixed - others);
  }
  for (std::size_t i = fixed + others; i-- > fixed;) {
    const std::size_t at = i - fixed;
    if (watched[i].revents != 0 && at < rank_.others().size() &&
        rank_.others()[at].peer.fd() == watched[i].fd)
      rank_.read_other(at);
  }
  if (watched[5].revents != 0 && agent_.is_attached() && agent_.peer().fd() == watched[5].fd) read_agent();
  if (watched[3].revents != 0) accept_peers(parts_.listener);
  if (watched[6].revents != 0 && memory_.is_called_back()) accept_peers(*memory_.reattach_listener());
  return ok();
}

void Keeper::accept_peers(local::Listener& listener) {
  while (unauthenticated_peers_.size() < kMaxUnauthenticatedPeers) {
    Result<std::optional<local::Socket>> accepted = listener.accept();
    if (!accepted.has_value()) return;  // the connection of a foreign user is already closed
    if (!*accepted) return;
    unauthenticated_peers_.emplace_back(std::move(**accepted));
  }
}

// Reads the first message of a new peer, which identifies the peer.
void Keeper::greet(std::size_t index) {
  Peer peer = std::move(unauthenticated_peers_[index]);
  unauthenticated_peers_.erase(unauthenticated_peers_.begin() + static_cast<std::ptrdiff_t>(index));
  Result<local::Received> received = peer.receive();
  if (!received.has_value() || received->transfer == local::Transfer::kClosed) return;
  if (received->transfer == local::Transfer::kNothing) {
    unauthenticated_peers_.push_back(std::move(peer));
    return;
  }
  const local::Message& message = received->message;
  if (const auto* hello = std::get_if<local::Hello>(&message.body)) return welcome(std::move(peer), *hello);
  if (!std::holds_alternative<local::Attach>(message.body)) return;
  agent_.attach(std::move(peer));
  agent_.send_status(message.request);
}

void Keeper::on_signals() {
  signalfd_siginfo info{};
  bool terminate = false;
  while (::read(parts_.signals.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    terminate = terminate || info.ssi_signo != SIGCHLD;
  }
  on_children();
  if (terminate && state_.phase != Phase::kExited) termination_.stop(0, kTerminationGraceMs);
}

void Keeper::on_children() {
  for (;;) {
    // The exit of a program under an init can be read only before the init is reaped.
    siginfo_t ended{};
    const auto rank = static_cast<id_t>(parts_.process.pid());
    const bool has_init = !parts_.config.init.empty() || parts_.config.restore.has_value();
    const bool rank_ended = has_init && state_.phase != Phase::kExited &&
                            ::waitid(P_PID, rank, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                            ended.si_pid != 0;
    const int program = rank_ended ? program_status(parts_.process.pid(), wait_status_of(ended)) : 0;
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
    if (pid <= 0) break;
    termination_.last_save().on_child_ended(pid, status);
    arriving_.on_child_changed(pid, status);
    if (pid == parts_.process.pid() && !ended_)
      rank_changed(rank_ended && !WIFSTOPPED(status) && !WIFCONTINUED(status) ? program : status);
  }
  if (ended_ && state_.phase != Phase::kExited && parts_.process.members().empty()) end_rank(*ended_);
}

// Releases the held threads at the limit. The work may wait for a lock of a held thread.
void Keeper::on_hold_limit() {
  if (!hold_.consume_expiry() || !hold_.is_held()) return;
  ::dprintf(2,
            "The restored program resumes before its context and memory are restored: the time limit for "
            "holding it has passed\n");
  hold_.end(!lease_.is_over());
}

void Keeper::rank_changed(int status) {
  if (status != kUnknownStatus && WIFSTOPPED(status)) return lease_.on_stopped();
  if (status != kUnknownStatus && WIFCONTINUED(status)) return lease_.on_continued();
  if (termination_.gives_grace() && !parts_.foreign && !parts_.process.members().empty()) {
    ended_ = status;
    return;
  }
  end_rank(status);
}

void Keeper::end_rank(int status) {
  if (Result<void> done = rank_exited(status); !done.has_value()) {
    ::dprintf(2, "%s\n", done.error().to_string().c_str());
  }
}

Result<void> Keeper::rank_exited(int status) {
  if (rank_.is_open())
    rank_.read();  // the messages that the rank sent before its exit are handled before
                   // the exit
  // Children that the program has left behind are killed with it. The keeper must not kill the children of an
  // adopted program.
  if (const Result<void> killed = parts_.foreign ? ok() : parts_.process.kill_all(); !killed.has_value())
    ::dprintf(2, "%s\n", killed.error().to_string().c_str());
  parts_.namespace_alive.reset();
  hold_.on_exited();
  lease_.on_exited();
  termination_.on_exited();
  arriving_.on_rank_exited();
  state_.wait_status = status;
  state_.phase = Phase::kExited;
  Result<void> written = write_exit_report(parts_.folder, parts_.config, state_, parts_.process.pid(),
                                           termination_.last_save().said(), arriving_.loss());
  rank_.close();
  memory_.on_exited();
  agent_.answer(0, local::RankExited{status, state_.ended_by_keeper ? 1u : 0u});
  return written;
}

// ---- the agent ----

void Keeper::read_agent() {
  Peer& peer = agent_.peer();
  if (peer.wants_to_write() && !peer.flush().has_value()) return agent_.drop();
  Result<local::Received> received = peer.receive();
  if (!received.has_value()) {
    ::dprintf(2, "The agent's connection is dropped: %s\n", received.error().to_string().c_str());
    return agent_.drop();
  }
  if (received->transfer == local::Transfer::kClosed) return agent_.drop();
  if (received->transfer == local::Transfer::kDone) on_agent_message(*std::move(received));
}

void Keeper::on_agent_message(local::Received received) {
  const std::uint64_t request = received.message.request;
  local::Body& body = received.message.body;
  const MessageType type = type_of(body);
  if (request == 0) return agent_.refuse(0, type, ErrorCode::kProtocol, "A request needs a nonzero number");
  if (termination_.last_save().is_under_way() && !is_allowed_in_last_save(type))
    return agent_.refuse(request, type, ErrorCode::kRefused,
                         "The job is about to be killed: its context is being saved");
  if (type == MessageType::kAwaitMemory) return arriving_.await(request);
  if (type == MessageType::kPrepareDump && !arriving_.is_whole()) return arriving_.refuse_dump(request);
  if (parts_.config.adopted && adopted_.handle(received)) return;
  switch (type) {
    case MessageType::kAttach:
      return agent_.send_status(request);
    case MessageType::kAskGroups:
    case MessageType::kJoinGroups:
    case MessageType::kDiscardGroups:
    case MessageType::kDescribe:
    case MessageType::kExportAck:
    case MessageType::kRegionFreedAck:
      return relay_to_rank(std::move(received));
    case MessageType::kExport:
      return begin_export(std::move(received));
    case MessageType::kStopExport:
      memory_.stop_export();
      return agent_.answer(request, local::Done{});
    case MessageType::kPause:
      return execution_.pause(request, std::get<local::Pause>(body));
    case MessageType::kStopAt:
      return execution_.stop_at(request, std::get<local::StopAt>(body));
    case MessageType::kResume:
      return execution_.resume(std::move(received));
    case MessageType::kMoved:
      return termination_.moved(request);
    case MessageType::kSetDeadline:
      lease_.set_deadline(std::get<local::SetDeadline>(body).deadline_ns, execution_.may_continue());
      return agent_.answer(request, local::Done{});
    case MessageType::kStop:
      return termination_.stop(request, std::get<local::Stop>(body).grace_ms);
    case MessageType::kKill:
      return termination_.kill(request);
    case MessageType::kShutdown:
      return shut_down(request);
    case MessageType::kRelease:
    case MessageType::kDeposit:
    case MessageType::kWithdraw:
    case MessageType::kMap:
    case MessageType::kMake:
    case MessageType::kPrepareDump:
    case MessageType::kReattach:
    case MessageType::kFetch:
    case MessageType::kReplace:
    case MessageType::kWithdrawRegions:
      return memory_.handle_request(std::move(received));
    default:
      return agent_.refuse(request, type, ErrorCode::kProtocol, "An agent must not send this message");
  }
}

void Keeper::shut_down(std::uint64_t request) {
  if (state_.phase != Phase::kExited)
    return agent_.refuse(request, MessageType::kShutdown, ErrorCode::kRefused,
                         "The job's program is still alive; stop it first");
  shutdown_ = true;
  agent_.answer(request, local::Done{});
}

void Keeper::begin_export(local::Received received) {
  if (!memory_.is_mapped())
    return agent_.refuse(received.message.request, MessageType::kExport, ErrorCode::kRefused,
                         "The job's device memory is not mapped: map it first");
  memory_.begin_export(received.message.request);
  relay_to_rank(std::move(received));
}

void Keeper::relay_to_rank(local::Received received) {
  if (rank_.is_open()) return rank_.send(received.message, std::move(received.descriptors));
  const MessageType type = type_of(received.message.body);
  // An acknowledgement has no receiver if its request no longer exists.
  const bool is_answered = type == MessageType::kDescribe || type == MessageType::kExport ||
                           type == MessageType::kAskGroups || type == MessageType::kJoinGroups;
  if (is_answered) agent_.refuse(received.message.request, type, ErrorCode::kRefused, why_no_rank());
}

std::string Keeper::why_no_rank() const {
  if (state_.phase == Phase::kExited) return "The program has exited";
  if (!is_transparent()) return "The program has not called ckpt_init";
  return "The program has no session: it does not use a GPU now (phase " +
         std::string(to_string(state_.phase)) + ")";
}

void Keeper::on_agent_gone() {
  if (termination_.last_save().is_under_way()) return;  // this keeper itself has paused the rank
  memory_.on_agent_gone();
  arriving_.on_agent_gone();
  execution_.on_agent_gone();
}

local::Status Keeper::status() const {
  local::Status status;
  status.job.assign(parts_.config.job);
  status.incarnation = state_.incarnation;
  status.role = parts_.config.role;
  status.phase = state_.phase;
  status.keeper_pid = static_cast<std::uint32_t>(::getpid());
  status.rank_pid = static_cast<std::uint32_t>(parts_.process.pid());
  status.rank_start_ticks = parts_.process.start_ticks();
  status.wait_status = state_.wait_status;
  status.ended_by_keeper = state_.ended_by_keeper ? 1 : 0;
  status.stopped = lease_.is_stop_reported() ? 1 : 0;
  status.exporting = memory_.is_exporting() ? 1 : 0;
  status.deadline_ns = lease_.deadline();
  status.barrier_entry_ns = state_.barrier_entry_ns;
  status.quiesced_ns = state_.quiesced_ns;
  status.resumed_ns = state_.resumed_ns;
  status.mode = parts_.config.mode;
  status.memory = memory_.memory();
  status.sessions = rank_.count();
  status.session_pid = static_cast<std::uint32_t>(rank_.pid());
  status.exported_regions = memory_.sets().exported().size();
  status.arrived_regions = memory_.sets().arrived().size();
  status.arrived_migration = memory_.sets().arrived_migration();
  return status;
}

// ---- the rank ----

// Returns the reason why the process may not have a session. An empty string means that it may.
std::string Keeper::why_turned_away(const Peer& peer, pid_t pid, const local::Hello& hello) {
  // This check follows the reading of the process's ancestors. Therefore no other process had the process's
  // number during that reading.
  if (pid <= 0 || !parts_.process.contains(pid) || peer.has_ended())
    return "This process does not belong to the job of this keeper";
  // The process may have connected right before the program's exit. A session would make the job appear alive
  // forever.
  if (state_.phase == Phase::kExited) return "The job's program has exited";
  if (hello.mode != parts_.config.mode) return "The job was started in a different migration mode";
  if (!is_transparent())
    return rank_.is_open()
               ? "The job already has a session, and a job in cooperative mode may have only one rank"
               : std::string();
  const bool awaited = state_.phase == Phase::kDumped;
  if (awaited != (hello.restored != 0))
    return awaited ? "The job has been dumped: only its own restored process may connect"
                   : "No reconnect was requested from this process";
  const bool is_full = !awaited && rank_.is_open() && rank_.others().size() >= RankLink::kMaxOthers;
  return is_full ? "The job has too many processes that use a GPU" : std::string();
}

void Keeper::welcome(Peer peer, const local::Hello& hello) {
  const Result<local::Socket::Peer> who = peer.identity();
  const pid_t pid = who.has_value() ? who->pid : 0;
  if (const std::string reason = why_turned_away(peer, pid, hello); !reason.empty()) {
    (void)peer.send({0, 0, to_failed(MessageType::kHello, Error(ErrorCode::kRefused, reason))}).has_value();
    return;
  }
  const bool is_further = is_transparent() && rank_.is_open() && state_.phase != Phase::kDumped;
  if (!is_further) return open_session(std::move(peer), pid);
  greet_rank(peer);
  rank_.add_other(std::move(peer), pid);
}

void Keeper::open_session(Peer peer, pid_t pid) {
  const bool comes_back = state_.phase == Phase::kDumped;
  if (comes_back) {
    if (const Result<Nanos> lag = rank_clock_lag(pid); lag.has_value()) state_.clock_lag = *lag;
  } else {
    state_.phase = is_transparent() ? Phase::kRunning : Phase::kConnected;
  }
  rank_.open(std::move(peer), pid);
  greet_rank(rank_.peer());
  if (comes_back) return memory_.on_called_back();
  if (is_transparent()) agent_.answer(0, local::Ready{});
}

void Keeper::greet_rank(Peer& peer) {
  UniqueFd page(::fcntl(parts_.page.fd(), F_DUPFD_CLOEXEC, 0));
  local::Welcome welcome;
  // A second session of the same program does not wait for a state that has already arrived.
  welcome.role = state_.resumed_ns == 0 ? parts_.config.role : local::Role::kFresh;
  welcome.incarnation = state_.incarnation;
  welcome.job.assign(parts_.config.job);
  welcome.counts_barriers = parts_.barriers ? 1 : 0;
  std::vector<UniqueFd> descriptors;
  descriptors.push_back(std::move(page));
  if (parts_.barriers) descriptors.emplace_back(::fcntl(parts_.barriers->fd(), F_DUPFD_CLOEXEC, 0));
  (void)peer.send({0, 0, welcome}, std::move(descriptors))
      .has_value();  // the disconnect of a peer is detected elsewhere
}

void Keeper::on_rank_message(local::Received received) {
  local::Message& message = received.message;
  switch (type_of(message.body)) {
    case MessageType::kReady:
      state_.phase = Phase::kRunning;
      break;
    case MessageType::kStandbyReady:
      state_.phase = Phase::kStandbyReady;
      break;
    case MessageType::kPaused:
      return execution_.on_paused(std::move(received));
    case MessageType::kInGate:
      return execution_.on_in_gate(message);
    case MessageType::kRunning:
      return execution_.on_running(message);
    case MessageType::kFailed:
      if (memory_.on_failed(message)) return;
      execution_.on_failed(message);
      memory_.on_export_failed(message);
      break;
    case MessageType::kExportBatch:
    case MessageType::kExportEnd:
    case MessageType::kRegionFreed:
    case MessageType::kTensorDropped:
      if (!memory_.on_export(received)) return;
      break;
    case MessageType::kDescribeEnd:
      rank_.mark_not_movable(std::get<local::DescribeEnd>(message.body).summary);
      break;
    case MessageType::kTensors:
    case MessageType::kRegions:
    case MessageType::kGroups:
    case MessageType::kGroupsEnd:
    case MessageType::kGroupsJoined:
      break;
    case MessageType::kReleased:
    case MessageType::kMapAck:
    case MessageType::kMapped:
    case MessageType::kMade:
    case MessageType::kDumpReady:
      return memory_.handle_answer(std::move(received));
    default:
      ::dprintf(2, "The rank sent an unexpected message\n");
      return rank_.drop();
  }
  agent_.send(message, std::move(received.descriptors));
  if (execution_.has_misfit() && parts_.config.role == local::Role::kStandby && state_.resumed_ns == 0)
    end_misfit();
}

// Kills a standby that could not load the source's state. The program may have caught the error, but it must
// not run at the same time as the source, which now continues.
void Keeper::end_misfit() {
  if (const Result<void> killed = parts_.process.kill_all(); !killed.has_value())
    ::dprintf(2, "%s\n", killed.error().to_string().c_str());
}

// Handles the exit of the rank or the loss of its session. The rank's unanswered requests fail here.
void Keeper::on_rank_gone() {
  if (memory_.on_dumped()) return;
  const std::string reason = "The program has ended its session";
  termination_.on_rank_gone();
  execution_.on_rank_gone(reason);
  memory_.on_rank_gone(reason);
  if (state_.phase == Phase::kLeaving || state_.phase == Phase::kExited) return;
  state_.phase = rank_.promote_other() ? Phase::kRunning : Phase::kStarting;
}

}  // namespace ckpt::keeper
