// SPDX-License-Identifier: Apache-2.0
// Measures one UCX lane and one TLS lane against one plain TCP stream over loopback; asserts nothing. Two
// processes send payloads of equal size. The last figure compares the TLS lane with a core that reads each
// byte from a plain stream and then encrypts it with AES-256-GCM.
//   transport_measure [PAYLOAD_BYTES [TOTAL_BYTES]]
//   transport_measure --rdma ADDRESS [PAYLOAD_BYTES [TOTAL_BYTES]]    one lane through that RDMA device only
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {
namespace {

constexpr SessionToken kToken = {std::byte{7}};
constexpr std::size_t kWindow = 8;

struct End : LaneHandler {
  explicit End(std::size_t bytes) : ring(kWindow * bytes, std::byte{1}), slot_bytes(bytes) {}
  std::vector<std::byte> ring;
  std::size_t slot_bytes;
  std::size_t next = 0;
  std::size_t received = 0;
  std::size_t in_flight = 0;
  bool open = false;
  bool closed = false;
  std::span<std::byte> slot() { return std::span(ring).subspan(next++ % kWindow * slot_bytes, slot_bytes); }
  void on_open() override { open = true; }
  std::span<std::byte> on_payload_begin(std::span<const std::byte>, std::size_t) override { return slot(); }
  void on_message(std::span<const std::byte>, std::span<const std::byte>) override { ++received; }
  void on_sent(std::uint64_t) override { --in_flight; }
  void on_closed(const Error& error) override {
    closed = true;
    if (error.code() == ErrorCode::kProtocol) std::fprintf(stderr, "%s\n", error.to_string().c_str());
  }
};

void drive(Lane& lane) {
  if (!lane.progress()) lane.wait(1'000'000'000);
}

using MakeTransport = std::function<std::unique_ptr<Transport>()>;
std::unique_ptr<Transport> make_ucx() {
  return *make_ucx_transport({});
}
std::unique_ptr<Transport> make_tls() {
  return *make_tls_transport({});
}

void send_all(const MakeTransport& make, const std::string& address, std::size_t bytes, std::size_t count) {
  End end(bytes);
  auto transport = make();
  auto lane = *transport->connect(address, kToken, end);
  std::size_t sent = 0;
  const std::byte header[32] = {};
  while (!end.closed) {
    while (end.open && sent < count && end.in_flight < kWindow) {
      if (!lane->send(header, end.slot(), sent).has_value()) break;
      ++sent;
      ++end.in_flight;
    }
    drive(*lane);
  }
}

double measure_lane(const MakeTransport& make, std::size_t bytes, std::size_t count) {
  int pipe_fds[2];
  if (::pipe(pipe_fds) != 0) std::abort();
  const pid_t child = ::fork();  // forks before the transport exists
  if (child == 0) {
    char address[256] = {};
    if (::read(pipe_fds[0], address, sizeof address - 1) > 0) send_all(make, address, bytes, count);
    ::_exit(0);
  }
  End end(bytes);
  auto transport = make();
  auto lane = *transport->listen(kToken, end);
  const std::string address = lane->address();
  if (::write(pipe_fds[1], address.data(), address.size()) < 0) std::abort();
  while (!end.open) drive(*lane);
  const Nanos start = now_ns();
  while (end.received < count && !end.closed) drive(*lane);
  const Nanos nanos = now_ns() - start;
  lane->close();
  ::waitpid(child, nullptr, 0);
  return double(bytes) * double(end.received) / double(nanos);
}

double measure_tcp(std::size_t bytes, std::size_t count) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {::htonl(INADDR_LOOPBACK)}};
  socklen_t length = sizeof address;
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) std::abort();
  if (::listen(listener.get(), 1) != 0) std::abort();
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const pid_t child = ::fork();
  std::vector<std::byte> ring(kWindow * bytes, std::byte{1});
  if (child == 0) {
    const UniqueFd out(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(out.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) ::_exit(1);
    for (std::size_t i = 0; i < count; ++i)
      (void)write_all(out.get(), std::span(ring).subspan(i % kWindow * bytes, bytes));
    ::_exit(0);
  }
  const UniqueFd in(::accept(listener.get(), nullptr, nullptr));
  const Nanos start = now_ns();
  std::size_t total = 0;
  while (total < bytes * count) {
    const std::size_t at = total % (kWindow * bytes);
    const ssize_t got = ::read(in.get(), ring.data() + at, std::min(bytes, kWindow * bytes - at));
    if (got <= 0) break;
    total += static_cast<std::size_t>(got);
  }
  const Nanos nanos = now_ns() - start;
  ::waitpid(child, nullptr, 0);
  return double(total) / double(nanos);
}

// Measures one core with records of full size, like `openssl speed -evp NAME -bytes 16384`.
double measure_cipher(const EVP_CIPHER* cipher) {
  constexpr int kRecord = 16384;
  constexpr Nanos kSpan = 400'000'000;
  std::vector<unsigned char> from(kRecord, 1), to(kRecord + 16);
  const std::array<unsigned char, 32> key{};
  const std::array<unsigned char, 12> nonce{};
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  EVP_EncryptInit_ex(context, cipher, nullptr, key.data(), nonce.data());
  std::size_t total = 0;
  const Nanos start = now_ns();
  Nanos nanos = 0;
  for (int length = 0; nanos < kSpan; nanos = now_ns() - start, total += kRecord)
    EVP_EncryptUpdate(context, to.data(), &length, from.data(), kRecord);
  EVP_CIPHER_CTX_free(context);
  return double(total) / double(nanos);
}

int measure_rdma(const std::string& ip, std::size_t bytes, std::size_t total) {
  const UcxOptions options{.ip = ip, .rdma = true};
  const double rate = measure_lane([&] { return *make_ucx_transport(options); }, bytes, total / bytes);
  std::printf("payload %zu: RDMA lane %.3f GB/s\n", bytes, rate);
  return 0;
}

}  // namespace

int measure(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--rdma") {
    return measure_rdma(argv[2], argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 1 << 20,
                        argc > 4 ? std::strtoull(argv[4], nullptr, 0) : std::size_t{4} << 30);
  }
  const std::size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1 << 20;
  const std::size_t total = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : std::size_t{4} << 30;
  for (int run = 0; run < 3; ++run) {
    const double tcp = measure_tcp(bytes, total / bytes);
    const double ucx = measure_lane(make_ucx, bytes, total / bytes);
    const double tls = measure_lane(make_tls, bytes, total / bytes);
    const double aes = measure_cipher(EVP_aes_256_gcm());
    std::printf(
        "payload %zu: plain TCP %.2f, UCX lane %.2f, TLS lane %.2f, AES-256-GCM %.2f, AES-128-GCM %.2f GB/s;",
        bytes, tcp, ucx, tls, aes, measure_cipher(EVP_aes_128_gcm()));
    std::printf(" UCX/TCP %.2f, TLS/(TCP and AES-256) %.2f\n", ucx / tcp, tls * (1 / tcp + 1 / aes));
  }
  return 0;
}

}  // namespace ckpt::transport

int main(int argc, char** argv) {
  return ckpt::transport::measure(argc, argv);
}
