// SPDX-License-Identifier: Apache-2.0
// Tests a checkpoint store that is written and read over a link: its content afterwards, and the operations
// that are refused to a client.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <thread>

#include "tests/unit/libckpt/store/peer/fixture.h"

namespace ckpt::checkpoint_store::test {
namespace {

ErrorCode code_of(const Result<void>& result) {
  return result ? ErrorCode{} : result.error().code();
}
template <class T>
ErrorCode code_of(const Result<T>& result) {
  return result ? ErrorCode{} : result.error().code();
}

// Connects and sends these bytes. Returns true if the other side then closes the connection, with a TLS alert
// at most.
bool is_hung_up_on(const std::string& address, const Bytes& bytes) {
  const UniqueFd socket = connect_to(address);
  if (::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return false;
  constexpr std::size_t kAlertBytes = 7;
  std::array<char, 4096> answer{};
  std::size_t answered = 0;
  while (true) {
    const ssize_t got = ::recv(socket.get(), answer.data(), answer.size(), 0);
    if (got <= 0) return answered <= kAlertBytes;
    answered += static_cast<std::size_t>(got);
  }
}

using PeerCheckpointStore = Peers;

TEST_F(PeerCheckpointStore, ChangedChunksAreWrittenAndRead) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  const Content first = some_content(1);
  Content second = first;
  second.regions[1][0] ^= std::byte{1};
  {
    auto open = must(open_checkpoint_store(route_to(*server, token), true));
    must(write_version(*open.checkpoint_store, "job", first, nullptr));
    const auto next = must(write_version(*open.checkpoint_store, "job", second, &first));
    EXPECT_EQ(next->parent, 1u);
    EXPECT_LT(next->written_bytes, 10'000u) << "what was there already has travelled again";
  }
  // Reads the versions over another connection, and then directly on the other node.
  auto reading =
      must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(false, false)))), false));
  EXPECT_EQ(must(restore_exactly(*reading.checkpoint_store, "job", 1)), first);
  EXPECT_EQ(must(restore_exactly(*reading.checkpoint_store, "job", 2)), second);
  auto there = must(CheckpointStore::open(disk(), {.writable = false}));
  EXPECT_EQ(must(restore_exactly(*there, "job", 2)), second);
}

TEST_F(PeerCheckpointStore, VersionsAreRemovedAndCollectedOverTheLink) {
  auto server = serve(0);
  auto open =
      must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(true, false)))), true));
  must(write_version(*open.checkpoint_store, "job", some_content(1), nullptr));
  const std::string first = packs_in(disk()).at(0);
  const Content last = some_content(2);
  must(write_version(*open.checkpoint_store, "job", last, nullptr));
  EXPECT_EQ(must(open.checkpoint_store->retain_newest("job", 1)), std::vector<std::uint64_t>{1});
  EXPECT_GT(must(open.checkpoint_store->collect("job")).freed_bytes, 10'000);
  EXPECT_EQ(must(restore_exactly(*open.checkpoint_store, "job", 2)), last);
  EXPECT_FALSE(std::filesystem::exists(disk() + "/jobs/job/packs/" + first));
}

TEST_F(PeerCheckpointStore, SecondWriterIsRefusedUntilTheFirstWriterDisconnects) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  auto first = std::make_optional(must(open_checkpoint_store(route_to(*server, token), true)));
  EXPECT_EQ(code_of(open_checkpoint_store(route_to(*server, token), true)), ErrorCode::kRefused);
  EXPECT_EQ(code_of(CheckpointStore::open(disk(), {})), ErrorCode::kRefused);
  first.reset();
  EXPECT_TRUE(open_checkpoint_store(route_to(*server, token), true));
}

// A mover that is killed closes no file or connection in order.
TEST_F(PeerCheckpointStore, ADisconnectedWriterLeavesNoFilesAndNoLock) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  {
    auto open = must(open_checkpoint_store(route_to(*server, token), true));
    must(write_version(*open.checkpoint_store, "job", some_content(1), nullptr));
  }
  const auto cut = must(server->grant(grant_of(true, false)));
  auto open = must(open_checkpoint_store(route_to(*server, cut), true));
  auto writer = must(open.checkpoint_store->begin_version("job", {.chunk_bytes = kTestChunk}));
  ASSERT_TRUE(put_content(*writer, some_content(2, 8 << 20), nullptr));
  server->revoke(cut);
  EXPECT_EQ(code_of(writer->commit({})), ErrorCode::kUnavailable);
  // The call succeeds as soon as the other side has noticed the disconnect.
  auto after = open_checkpoint_store(route_to(*server, token), true);
  while (code_of(after) == ErrorCode::kRefused) after = open_checkpoint_store(route_to(*server, token), true);
  auto again = must(std::move(after));
  EXPECT_EQ(must(again.checkpoint_store->versions("job")).size(), 1u);
  EXPECT_EQ(must(restore_exactly(*again.checkpoint_store, "job", 1)), some_content(1));
}

TEST_F(PeerCheckpointStore, AccessWithoutATokenIsRefused) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  std::vector<std::byte> other = token;
  other.back() ^= std::byte{1};
  EXPECT_EQ(code_of(open_checkpoint_store(route_to(*server, other), true)), ErrorCode::kUnavailable);
  EXPECT_EQ(code_of(open_checkpoint_store(route_to(*server, {}), true)), ErrorCode::kInvalidArgument);
  server->revoke(token);
  EXPECT_EQ(code_of(open_checkpoint_store(route_to(*server, token), true)), ErrorCode::kUnavailable);
  FileGrant over = grant_of(true, false);
  over.lasts = std::chrono::milliseconds(-1);
  EXPECT_EQ(code_of(open_checkpoint_store(route_to(*server, must(server->grant(over))), true)),
            ErrorCode::kUnavailable);
}

TEST_F(PeerCheckpointStore, GrantCoversOnlyItsJobAndItsRights) {
  auto server = serve(0);
  {
    auto checkpoint_store = must(CheckpointStore::open(disk(), {}));
    must(write_version(*checkpoint_store, "job", some_content(1), nullptr));
    must(write_version(*checkpoint_store, "other", some_content(2), nullptr));
  }
  auto reading =
      must(open_checkpoint_store(route_to(*server, must(server->grant(grant_of(false, false)))), false));
  EXPECT_EQ(must(reading.checkpoint_store->jobs()).size(), 1u);
  EXPECT_EQ(code_of(reading.checkpoint_store->open_version("other")), ErrorCode::kNotFound);
  Files& files = *reading.files;
  EXPECT_EQ(code_of(files.open("node-b/jobs/other/job")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(files.open("node-b/../vault/lock")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(files.create("node-b/jobs/job/packs/9.pack")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(files.remove("node-b/jobs/job/job")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(files.lock("node-b/lock")), ErrorCode::kInvalidArgument) << "it would keep writers out";
  // A client that may write holds the checkpoint store's lock first.
  RemoteFiles::Settings settings;
  settings.address = server->address();
  settings.token = must(server->grant(grant_of(true, false)));
  settings.folder = "node-b";
  auto writing = must(RemoteFiles::connect(settings));
  EXPECT_EQ(code_of(writing->remove("node-b/jobs/job/job")), ErrorCode::kInvalidArgument);
  const auto lock = must(writing->lock("node-b/lock"));
  EXPECT_TRUE(writing->remove("node-b/jobs/job/job"));
}

TEST_F(PeerCheckpointStore, GrantCannotChangeFilesOfTheCheckpointStoreItself) {
  auto server = serve(0);
  RemoteFiles::Settings settings;
  settings.address = server->address();
  settings.token = must(server->grant(grant_of(true, false)));
  settings.folder = "node-b";
  auto writing = must(RemoteFiles::connect(settings));
  must(writing->make_folder("node-b"));
  const auto lock = must(writing->lock("node-b/lock"));
  for (const char* path : {"node-b/vault", "node-b/vault.new", "node-b/lock", "node-b/jobs",
                           "node-b/jobs/job", "node-b/jobs/job/packs"}) {
    EXPECT_EQ(code_of(writing->create(path)), ErrorCode::kInvalidArgument) << path;
    EXPECT_EQ(code_of(writing->remove(path)), ErrorCode::kInvalidArgument) << path;
    EXPECT_EQ(code_of(writing->rename(path, "node-b/jobs/job/job")), ErrorCode::kInvalidArgument) << path;
  }
  must(writing->make_folder("node-b/jobs"));
  must(writing->make_folder("node-b/jobs/job"));
  auto file = must(writing->create("node-b/jobs/job/job.new"));
  for (const char* path : {"node-b/vault", "node-b/lock", "node-b/jobs/job"})
    EXPECT_EQ(code_of(writing->rename("node-b/jobs/job/job.new", path)), ErrorCode::kInvalidArgument) << path;
  EXPECT_EQ(code_of(writing->make_folder("node-b/jobs/job/packs/1.pack")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(writing->remove_folder("node-b")), ErrorCode::kInvalidArgument);
  // The server's own files still exist and are unchanged.
  EXPECT_TRUE(std::filesystem::exists(disk() + "/vault"));
  EXPECT_TRUE(std::filesystem::exists(disk() + "/lock"));
}

TEST_F(PeerCheckpointStore, WriterCannotExceedItsLimit) {
  constexpr std::uint64_t kLimit = 1 << 20;
  auto server = serve(0);
  FileGrant grant = grant_of(true, false);
  grant.limit_bytes = kLimit;
  RemoteFiles::Settings settings;
  settings.address = server->address();
  settings.token = must(server->grant(grant));
  settings.folder = "node-b";
  auto writing = must(RemoteFiles::connect(settings));
  must(writing->make_folder("node-b"));
  const auto lock = must(writing->lock("node-b/lock"));
  for (const char* path : {"node-b/jobs", "node-b/jobs/job", "node-b/jobs/job/packs"})
    must(writing->make_folder(path));
  const std::string pack = "node-b/jobs/job/packs/1.pack.new";
  auto file = must(writing->create(pack));
  const Bytes piece(kLimit / 4);
  EXPECT_EQ(code_of(file->write_at(std::uint64_t{1} << 40, piece)), ErrorCode::kInvalidArgument) << "a hole";
  for (std::uint64_t at = 0; at < kLimit; at += piece.size()) must(file->write_at(at, piece));
  EXPECT_EQ(code_of(file->write_at(kLimit, piece)), ErrorCode::kRefused);
  must(file->write_at(0, piece));  // existing bytes may be written again
  auto other = must(writing->create("node-b/jobs/job/packs/2.pack.new"));
  EXPECT_EQ(code_of(other->write_at(0, piece)), ErrorCode::kRefused) << "one limit for all its files";
  // A pack that was renamed, and then removed, cannot be written without the server's checks.
  must(writing->rename(pack, "node-b/jobs/job/packs/1.pack"));
  EXPECT_EQ(code_of(file->write_at(kLimit, piece)), ErrorCode::kRefused);
  must(writing->remove("node-b/jobs/job/packs/1.pack"));
  EXPECT_EQ(code_of(file->write_at(0, piece)), ErrorCode::kInvalidArgument);
  must(other->write_at(0, piece));
  EXPECT_LE(std::filesystem::file_size(disk() + "/jobs/job/packs/2.pack.new"), kLimit);
}

TEST_F(PeerCheckpointStore, LimitIncludesExistingFilesAndAllowsCollection) {
  auto server = serve(0);
  FileGrant grant = grant_of(true, false);
  grant.limit_bytes = 120'000;
  auto open =
      std::make_optional(must(open_checkpoint_store(route_to(*server, must(server->grant(grant))), true)));
  must(write_version(*open->checkpoint_store, "job", some_content(1, 60'000), nullptr));
  must(write_version(*open->checkpoint_store, "job", some_content(2, 20'000), nullptr));
  EXPECT_EQ(must(open->checkpoint_store->retain_newest("job", 1)), std::vector<std::uint64_t>{1});
  EXPECT_GT(must(open->checkpoint_store->collect("job")).freed_bytes, 30'000);
  open.reset();
  auto again = must(open_checkpoint_store(route_to(*server, must(server->grant(grant))), true));
  must(write_version(*again.checkpoint_store, "job", some_content(3, 60'000), nullptr));
  EXPECT_EQ(code_of(write_version(*again.checkpoint_store, "job", some_content(4, 200'000), nullptr)),
            ErrorCode::kRefused);
}

TEST_F(PeerCheckpointStore, OnlyPathsOfOneJobAreAccepted) {
  for (const char* good : {"", "vault", "vault.new", "lock", "jobs", "jobs/job", "jobs/job/job",
                           "jobs/job/packs", "jobs/job/packs/7.pack.new", "jobs/job/versions/1.version"})
    EXPECT_TRUE(check_path(good, "job")) << good;
  for (const char* bad :
       {"..", "/etc/passwd", "jobs/", "jobs/jo", "jobs/jobs", "jobs/job2", "jobs/job2/job", "jobs/job/",
        "jobs/job/../other/job", "jobs/job/packs/", "jobs/job/packs/..", "jobs/job/packs/.x",
        "jobs/job/packs/a/b", "jobs/job/keys", "vault/x", "jobs/job/packsx"})
    EXPECT_FALSE(check_path(bad, "job")) << bad;
  EXPECT_FALSE(check_path(std::string("jobs/job/packs/\0x", 17), "job"));
  EXPECT_FALSE(check_path("jobs/job/packs/" + std::string(600, 'a'), "job"));
}

TEST_F(PeerCheckpointStore, MalformedBytesEndOnlyTheirConnection) {
  auto server = serve(0);
  const auto token = must(server->grant(grant_of(true, false)));
  std::uint64_t seed = 7;
  for (const std::size_t bytes : {1u, 31u, 32u, 1000u, 100'000u})
    EXPECT_TRUE(bytes < 32 || is_hung_up_on(server->address(), random_bytes(bytes, ++seed)));
  // Sends, with the key but before a hello, a frame head whose lengths exceed all limits.
  const FrameKey key = must(frame_key_of(token));
  const auto wait = std::chrono::seconds(5);
  auto early = must(FrameStream::connect(server->address(), key, wait));
  must(early.send(Bytes(kMaxRequestBytes + 1), {}));
  EXPECT_FALSE(early.receive(wait, kMaxRequestBytes, {}));
  const Bytes head = wire::encode(FileHello());
  // Sends invalid requests after a valid hello.
  auto stream = must(FrameStream::connect(server->address(), key, wait));
  must(stream.send(head, {}));
  (void)must(stream.receive(std::chrono::seconds(5), kMaxRequestBytes, {}));
  FileRequest nonsense(FileOp::kRead);
  nonsense.handle = 99;
  nonsense.bytes = ~std::uint64_t{0};
  must(stream.send(wire::encode(nonsense), {}));
  const auto said = must(stream.receive(std::chrono::seconds(5), kMaxRequestBytes, {}));
  EXPECT_FALSE(must(wire::decode<FileReply>(said.head)).done);
  must(stream.send(random_bytes(100, 3), {}));
  EXPECT_FALSE(stream.receive(std::chrono::seconds(5), kMaxRequestBytes, {}));

  EXPECT_TRUE(open_checkpoint_store(route_to(*server, token), true)) << "the server does not serve any more";
}

TEST_F(PeerCheckpointStore, UnreachableServerIsReportedByAddress) {
  std::string address;
  std::vector<std::byte> token;
  {
    auto server = serve(0);
    address = server->address();
    token = must(server->grant(grant_of(true, false)));
  }
  Route route;
  route.folder = "node-b";
  route.peer_address = address;
  route.peer_token = token;
  const auto open = open_checkpoint_store(route, true);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(open.error().to_string().find("node-b cannot be reached at " + address), std::string::npos);
}

}  // namespace
}  // namespace ckpt::checkpoint_store::test
