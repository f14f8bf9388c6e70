// SPDX-License-Identifier: Apache-2.0
// A CUDA context: the program's side of one executor. Commands are written to the ring of a stream. Requests
// with descriptors or answers are sent over the socket.
//
// Threads: all methods may be called at once. Ownership: contexts, streams, events, modules and functions are
// never freed; their `alive` flag reveals the use of a destroyed handle. Errors: CUresult; once `error()` is
// set, every call returns this error (sticky).
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simulators/cudasim/driver/gate.h"
#include "tests/simulators/cudasim/protocol/message.h"
#include "tests/simulators/cudasim/protocol/shared.h"

namespace cudasim {

class Context;
struct Capture;
struct Node;

struct Stream {
  std::atomic<bool> alive{false};
  Context* context = nullptr;
  int slot = 0;
  std::uint64_t id = 0;  // an ID that no other stream ever has
  unsigned flags = 0;
  int priority = 0;
  std::atomic<Capture*> capture{nullptr};  // the capture that the stream takes part in (capture.h); null:
                                           // none
  std::vector<Node*> capture_tail;         // the nodes that the next captured node depends on
};

struct Event {
  std::atomic<bool> alive{false};
  Context* context = nullptr;
  unsigned flags = 0;
  std::uint64_t index = 0;       // index of the event's time stamp
  std::uint64_t capture_id = 0;  // the capture that recorded the event after the nodes in `captured`; 0: none
  std::vector<Node*> captured;
  // The last record command: the stream's slot and the sequence number in one word, since one thread may
  // record while another thread queries. 0: never recorded.
  std::atomic<std::uint64_t> recorded{0};
  static constexpr int kSlotShift = 52;
  void set_recorded(int slot, std::uint64_t sequence) {
    recorded = (static_cast<std::uint64_t>(slot) << kSlotShift) | sequence;
  }
  static int slot_of(std::uint64_t word) { return static_cast<int>(word >> kSlotShift); }
  static std::uint64_t sequence_of(std::uint64_t word) {
    return word & ((std::uint64_t{1} << kSlotShift) - 1);
  }
};

struct Function {
  Context* context = nullptr;
  struct Module* module = nullptr;
  std::string name;
  std::uint64_t address = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> parameters;  // size and alignment of each parameter
};

struct Module {
  std::atomic<bool> alive{false};
  Context* context = nullptr;
  std::uint64_t id = 0;
  std::vector<unsigned char> image;  // the image, which a new executor loads after a restore
  std::uint64_t variables = 0;       // address of the module's variables; 0: the module has none
  std::vector<unsigned char> saved;  // content of the variables while the process is checkpointed
  std::map<std::string, std::unique_ptr<Function>> functions;
  // Address and size in bytes of each global variable.
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> globals;
};

class Context {
 public:
  // Creates a context and starts its executor on the device with this ordinal of the program.
  static CUresult create(int ordinal, int physical, unsigned flags, Context** out);
  void destroy();

  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] unsigned flags() const { return flags_; }
  void set_flags(unsigned flags) { flags_ = flags; }
  // Gets a limit. Limits are stored without any effect. Returns CUDA_ERROR_UNSUPPORTED_LIMIT if this device
  // does not have the limit.
  CUresult get_limit(CUlimit limit, std::size_t* value);
  CUresult set_limit(CUlimit limit, std::size_t value);
  [[nodiscard]] pid_t executor() const { return executor_; }
  CUresult error() { return static_cast<CUresult>(shared_->error.load(std::memory_order_relaxed)); }

  // Sends one request and waits for its reply. `reply_fd` receives the reply's descriptor, or -1.
  CUresult call(const RequestMessage& request, int fd, ReplyMessage* reply, int* reply_fd);
  CUresult call(const RequestMessage& request, ReplyMessage* reply = nullptr);

  // Submits a command. `command` begins with a CommandHeader in which only `command` is set. `payload` may be
  // null.
  CUresult submit(Stream* stream, void* command, std::size_t bytes, const void* payload,
                  std::size_t payload_bytes, std::uint64_t* sequence);
  CUresult wait(int slot, std::uint64_t sequence);
  [[nodiscard]] bool completed(int slot, std::uint64_t sequence) const {
    return shared_->streams[slot].completed.load(std::memory_order_acquire) >= sequence;
  }
  CUresult synchronize(Stream* stream);
  CUresult query(Stream* stream);
  CUresult synchronize();

  CUresult create_stream(unsigned flags, int priority, Stream** out);
  void destroy_stream(Stream* stream);
  Stream* legacy_stream() { return &legacy_; }
  Stream* thread_stream();
  CUresult create_event(unsigned flags, Event** out);
  void destroy_event(Event* event);
  std::uint64_t event_time(const Event& event) { return shared_->event_ns[event.index].load(); }
  CUresult host_function(Stream* stream, CUhostFn function, void* data);

  CUresult load_module(const void* image, std::uint64_t bytes, Module** out);

  // Steps of a checkpoint of the process, in this order (checkpoint_context.cc).
  bool drain(Deadline deadline);
  CUresult save();
  void close_executor();
  // Closes a forked child's copy of the connection.
  void forget_executor();
  CUresult open_executor(int physical);
  void mark_restored();
  // Records that the program exits in an orderly way.
  void mark_leaving();

 private:
  struct Slot {
    std::mutex mutex;
    std::uint64_t produced = 0;
    std::uint64_t legacy_waited = 0;
    std::atomic<std::uint64_t> submitted{0};
    std::atomic<bool> joins_legacy{false};
    bool opened = false;
    bool used = false;
    std::uint64_t host_ticket = 0;
  };
  struct HostCall {
    int slot;
    std::uint64_t ticket;
    CUhostFn function;
    void* data;
  };

  static constexpr int kCheckIntervalMs = 100;  // ms between checks of the executor while waiting for it
  CUresult start_executor(int physical);
  bool share_state(int memory);
  void copy_shared(ContextShared* to);
  bool make_shared_state_private();
  CUresult load_image(const std::vector<unsigned char>& image, std::uint64_t variables, ReplyMessage* reply);
  CUresult reload(Module* module);
  bool publish(int slot, CommandHeader* command, std::size_t bytes, const void* payload,
               std::size_t payload_bytes);
  bool wait_for_space(int slot, std::uint64_t needed);
  bool publish_wait(int slot, int on, std::uint64_t sequence);
  bool join_streams(Stream* stream);
  void check_executor();
  void run_host_functions();

  std::atomic<bool> alive_{false};
  int ordinal_ = 0;
  int number_ = 0;
  std::atomic<unsigned> flags_ = 0;
  std::atomic<std::size_t> limits_[3] = {1024, std::size_t{1} << 20, std::size_t{8} << 20};
  pid_t executor_ = 0;
  int socket_ = -1;
  ContextShared* shared_ = nullptr;
  std::mutex control_;
  std::mutex objects_;
  std::array<Slot, kMaxStreams> slots_;
  std::atomic<int> slots_high_{1};
  Stream legacy_;
  std::deque<Stream> streams_;
  std::deque<Event> events_;
  std::vector<Event*> free_events_;
  std::deque<Module> modules_;
  std::mutex host_mutex_;
  std::vector<HostCall> host_calls_;
  bool host_thread_ = false;
};

// Creates an unnamed file with this content. Returns -1 if memory is exhausted.
int make_file(const std::vector<unsigned char>& content);

}  // namespace cudasim
