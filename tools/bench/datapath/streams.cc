// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/datapath/streams.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "tools/bench/measuring/measure.h"

namespace ckpt::bench {

Result<std::unique_ptr<ByteStreams>> ByteStreams::start(const std::string& program, Kind kind) {
  CKPT_TRY(child, Child::start(program, kind == Kind::kTcp ? "tcp-sink" : "ucx-sink"));
  return std::unique_ptr<ByteStreams>(new ByteStreams(std::move(child), kind));
}

Result<HostMemory> make_ring() {
  HostMemory ring(kRingBytes);
  if (ring.bytes().empty())
    return Error(ErrorCode::kOutOfMemory, "There is no memory for a stream's buffers");
  fill_random(ring.bytes(), 7);
  return ring;
}

Result<StreamRun> ByteStreams::run(unsigned connections, std::uint64_t bytes) {
  const std::size_t message = kind_ == Kind::kTcp ? kTcpMessageBytes : lane_message_bytes();
  const std::uint64_t messages = std::max<std::uint64_t>(bytes / message / connections, 1);
  CKPT_TRY(places, child_->ask({{"connections", connections}, {"messages", messages}}));
  const auto addresses = places.find("addresses");
  if (addresses == places.end() || !addresses->is_array() || addresses->size() != connections)
    return Error(ErrorCode::kProtocol, "The sink reported no addresses");
  std::vector<std::unique_ptr<ByteSource>> sources;
  for (const auto& address : *addresses) {
    const std::string text = address.get<std::string>();
    CKPT_TRY(source, kind_ == Kind::kTcp ? connect_tcp(text) : connect_ucx(text, kind_ == Kind::kSameHost));
    sources.push_back(std::move(source));
  }
  CKPT_TRYV(child_->receive());  // waits until all connections are made

  const CpuMeter meter({child_->pid()});
  const Nanos start = now_ns();
  std::vector<Result<void>> results(connections, ok());
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < connections; ++i)
    threads.emplace_back([&, i] { results[i] = sources[i]->send(messages); });
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results) {
    CKPT_TRYV(std::move(result));
  }
  CKPT_TRYV(child_->receive());  // waits until all bytes have arrived at the second process
  return StreamRun{now_ns() - start, meter.elapsed()};
}

}  // namespace ckpt::bench
