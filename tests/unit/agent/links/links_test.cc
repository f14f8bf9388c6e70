// SPDX-License-Identifier: Apache-2.0
// Tests of packets with descriptors, of child processes, and of the link between agents.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/io/packet_link.h"
#include "agent/io/process.h"
#include "agent/links/peer_links.h"
#include "agent/migration/handover_driver.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"
#include "tests/unit/support/certificates.h"

namespace ckpt::agent {
namespace {

struct End {
  std::shared_ptr<PacketLink> link;
  std::vector<Packet> got;
  std::vector<Error> closed;
};

class PacketLinkTest : public ::testing::Test {
 protected:
  PacketLinkTest() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    open(a_, ends[0]);
    open(b_, ends[1]);
  }
  void open(End& end, int socket) {
    auto link = PacketLink::create(io_.get_executor(), UniqueFd(socket), 1000);
    ASSERT_TRUE(link);
    end.link = *link;
    end.link->start({[&end](Packet packet) { end.got.push_back(std::move(packet)); },
                     [&end](Error error) { end.closed.push_back(std::move(error)); }});
  }
  static Packet packet_of(std::size_t bytes, std::byte fill = std::byte{1}) {
    Packet packet;
    packet.bytes.assign(bytes, fill);
    return packet;
  }
  asio::io_context io_;
  End a_, b_;
};

TEST_F(PacketLinkTest, DescriptorsArriveWithTheirPacket) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  UniqueFd reader(pipe_ends[0]);
  Packet packet = packet_of(3);
  packet.descriptors.emplace_back(pipe_ends[1]);
  a_.link->send(std::move(packet));
  run_until(io_, [&] { return !b_.got.empty(); });
  ASSERT_EQ(b_.got[0].descriptors.size(), 1u);
  ASSERT_EQ(::write(b_.got[0].descriptors[0].get(), "x", 1), 1);
  char seen = 0;
  EXPECT_EQ(::read(reader.get(), &seen, 1), 1);
  EXPECT_EQ(seen, 'x');
}

TEST_F(PacketLinkTest, PacketsBeyondTheSocketBufferKeepTheirOrder) {
  constexpr int kCount = 2000;
  for (int i = 0; i < kCount; ++i) a_.link->send(packet_of(900, static_cast<std::byte>(i & 0xff)));
  run_until(io_, [&] { return b_.got.size() == kCount; });
  for (int i = 0; i < kCount; ++i)
    ASSERT_EQ(b_.got[static_cast<std::size_t>(i)].bytes[0], static_cast<std::byte>(i & 0xff));
}

// An agent sends this many packets for the mappings of a program, to a mover that is busy.
TEST_F(PacketLinkTest, ManySmallPacketsAreQueuedForABusyPeer) {
  constexpr std::size_t kCount = 50'000;
  for (std::size_t i = 0; i < kCount; ++i) a_.link->send(packet_of(40, static_cast<std::byte>(i & 0xff)));
  run_until(io_, [&] { return b_.got.size() == kCount || !a_.closed.empty(); });
  ASSERT_TRUE(a_.closed.empty()) << a_.closed[0].to_string();
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(b_.got[i].bytes[0], static_cast<std::byte>(i & 0xff));
}

TEST_F(PacketLinkTest, PeerThatDoesNotReadIsDisconnectedWithAReason) {
  for (int i = 0; i < 100'000; ++i) a_.link->send(packet_of(900));
  run_until(io_, [&] { return !a_.closed.empty(); });
  EXPECT_EQ(a_.closed[0].code(), ErrorCode::kOutOfMemory);
  EXPECT_NE(a_.closed[0].to_string().find("packets are queued"), std::string::npos)
      << a_.closed[0].to_string();
}

TEST_F(PacketLinkTest, APacketOverTheLimitEndsTheLink) {
  a_.link->send(packet_of(1001));
  run_until(io_, [&] { return !b_.closed.empty(); });
  EXPECT_EQ(b_.closed[0].code(), ErrorCode::kProtocol);
  EXPECT_TRUE(b_.got.empty());
}

TEST_F(PacketLinkTest, MessagesSentBeforeTheCloseAreReceived) {
  a_.link->send(packet_of(1));
  a_.link->close();
  b_.link->send(packet_of(1));  // sent to a closed peer
  run_until(io_, [&] { return !b_.closed.empty(); });
  EXPECT_EQ(b_.got.size(), 1u);
  EXPECT_EQ(b_.closed[0].code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(a_.closed.empty());
}

TEST_F(PacketLinkTest, LastMessageOfAPeerWithUnreadMessagesIsReceived) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(::send(ends[0], "order", 5, 0), 5);
  ASSERT_EQ(::send(ends[1], "bye", 3, 0), 3);
  ::close(ends[1]);  // closed with the order unread: Linux reports ECONNRESET to the other side, then
                     // delivers what was sent
  End end;
  open(end, ends[0]);
  run_until(io_, [&] { return !end.closed.empty(); });
  EXPECT_EQ(end.got.size(), 1u);
  EXPECT_EQ(end.closed[0].code(), ErrorCode::kUnavailable);
}

class ChildProcessTest : public ::testing::Test {
 protected:
  // Runs a shell script and returns its wait status.
  int run_script(const std::string& script, int inherited = -1) {
    ProcessSpec spec;
    spec.argv = {"/bin/sh", "-c", script};
    spec.environment = {"ADDED=yes"};
    spec.output_path = folder_ / "out";
    spec.inherited = inherited;
    std::optional<int> status;
    auto child = ChildProcess::start(io_.get_executor(), spec, [&](int ended) { status = ended; });
    if (!child) ADD_FAILURE() << child.error().to_string();
    run_until(io_, [&] { return status.has_value(); });
    return status.value_or(-1);
  }
  asio::io_context io_;
  TemporaryFolder folder_;
};

TEST_F(ChildProcessTest, ChildGetsItsEnvironmentAndASingleDescriptor) {
  UniqueFd other(::open("/dev/null", O_RDONLY));  // a descriptor without close-on-exec, which must not leak
  UniqueFd inherited(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int status = run_script(
      "test \"$ADDED\" = yes || exit 1; test -e /proc/self/fd/3 || exit 2; "
      "for f in 4 5 6 7 8 9 10 11 12 13 14 15; do test -e /proc/$$/fd/$f && exit 3; done; exit 42",
      inherited.get());
  EXPECT_EQ(WEXITSTATUS(status), 42) << describe_wait_status(status);
}

TEST_F(ChildProcessTest, ExitBySignalIsReported) {
  const int status = run_script("kill -TERM $$");
  EXPECT_EQ(describe_wait_status(status), "signal 15 (Terminated)");
}

TEST_F(ChildProcessTest, AMissingProgramIsReportedByName) {
  ProcessSpec spec;
  spec.argv = {"/nonexistent/mover"};
  spec.output_path = folder_ / "out";
  auto child = ChildProcess::start(io_.get_executor(), spec, [](int) {});
  ASSERT_FALSE(child);
  EXPECT_NE(child.error().to_string().find("/nonexistent/mover"), std::string::npos);
}

// A receiver that takes each message that `may_send` permits, with the function `receive`.
class FakeMessages : public PeerMessages {
 public:
  using Receive = std::function<void(wire::CommitMessage)>;
  using MaySend = std::function<bool(const PeerNode&, const wire::CommitMessage&)>;
  FakeMessages(Receive receive, MaySend may_send)
      : receive_(std::move(receive)), may_send_(std::move(may_send)) {}
  bool handle(const PeerNode& node, const wire::CommitMessage& message) override {
    if (!may_send_(node, message)) return false;
    receive_(message);
    return true;
  }

 private:
  Receive receive_;
  MaySend may_send_;
};

class PeerLinksTest : public ::testing::Test {
 protected:
  std::unique_ptr<PeerLinks> start(PeerLinks::Settings settings, FakeMessages::Receive receive,
                                   FakeMessages::MaySend may_send) {
    auto& messages =
        messages_.emplace_back(std::make_unique<FakeMessages>(std::move(receive), std::move(may_send)));
    auto links = std::make_unique<PeerLinks>(io_.get_executor(), std::move(settings), *messages);
    EXPECT_TRUE(links->listen());
    return links;
  }
  std::unique_ptr<PeerLinks> make(const std::string& node, std::vector<wire::CommitMessage>& heard) {
    PeerLinks::Settings settings;
    settings.node = node;
    settings.listen = "unix:" + (folder_ / (node + ".sock"));
    settings.port_file = folder_ / (node + ".port");
    return start(
        settings, [&heard](wire::CommitMessage message) { heard.push_back(std::move(message)); },
        [](const PeerNode& from, const wire::CommitMessage& /*message*/) { return !from.is_certified; });
  }
  static wire::CommitMessage runs(wire::Role from, wire::Role to, wire::Incarnation k) {
    return wire::CommitMessage(5, 1, 1, from, to, wire::Body(wire::Ran(k)));
  }
  TemporaryFolder folder_;
  asio::io_context io_;
  std::vector<std::unique_ptr<FakeMessages>> messages_;
  std::vector<wire::CommitMessage> heard_a_, heard_b_;
};

TEST_F(PeerLinksTest, LinkCarriesMessagesInBothDirections) {
  auto a = make("a", heard_a_);
  auto b = make("b", heard_b_);
  b->on_token("secret");
  a->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return a->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 3)); });
  run_until(io_, [&] { return !heard_b_.empty(); });
  EXPECT_TRUE(b->send("a", runs(wire::Role::kTarget, wire::Role::kSource, 2)));
  run_until(io_, [&] { return !heard_a_.empty(); });
  EXPECT_EQ(std::get<wire::Ran>(heard_a_[0].body).k, 2u);
  EXPECT_FALSE(b->send("c", runs(wire::Role::kTarget, wire::Role::kSource, 2)));
}

TEST_F(PeerLinksTest, WrongTokenIsRefused) {
  auto a = make("a", heard_a_);
  auto b = make("b", heard_b_);
  auto c = make("c", heard_a_);
  b->on_token("secret");
  a->add(5, "b", b->address(), "guessed");
  c->add(5, "b", b->address(), "secret");
  // Node c dialed later. When c is connected, node b has decided about a.
  run_until(io_, [&] { return c->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 3)); });
  EXPECT_FALSE(a->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 3)));
  EXPECT_FALSE(b->send("a", runs(wire::Role::kTarget, wire::Role::kSource, 2)));
}

struct Quiet : HandoverEffects {
  void send(const migration::HandoverKey&, const migration::HandoverInfo&,
            const wire::CommitMessage&) override {
    ++sent;
  }
  void report(const migration::HandoverKey&, const migration::HandoverInfo&,
              const migration::Report&) override {}
  void perform(const migration::HandoverKey&, const migration::HandoverInfo&,
               const migration::Action&) override {
    ++performed;
  }
  int sent = 0;
  int performed = 0;
};

// Tests over TLS. Node b takes part in migration 5 as its target; the source is node a.
class CertifiedPeerLinksTest : public PeerLinksTest {
 protected:
  std::unique_ptr<PeerLinks> make(const std::string& node, const std::string& certificate,
                                  std::vector<wire::CommitMessage>& heard) {
    return make(node, certificate, [&heard](wire::CommitMessage message) { heard.push_back(message); });
  }
  std::unique_ptr<PeerLinks> make(const std::string& node, const std::string& certificate,
                                  FakeMessages::Receive receive) {
    PeerLinks::Settings settings;
    settings.node = node;
    settings.listen = "127.0.0.1:0";
    settings.port_file = folder_ / (node + ".port");
    settings.identity = certificates_.identity(certificate, tls::Peer::node(certificate));
    serials_[node] = settings.identity->subject().serial;
    settings.denied = denied_;
    const auto may_send = [node](const PeerNode& from, const wire::CommitMessage& message) {
      EXPECT_TRUE(from.is_certified);
      if (message.kind == wire::CommitKind::kGang) return from.name == "a" && message.from.rank == 0;
      const OtherSide side =
          node == "b" ? OtherSide{"a", wire::Role::kSource} : OtherSide{"b", wire::Role::kTarget};
      return message.migration == 5 && speaks_for_itself(side, from.name, message);
    };
    auto links = start(
        settings,
        [this, receive = std::move(receive)](wire::CommitMessage message) {
          if (message.kind == wire::CommitKind::kGang) return of_ranks_.push_back(std::move(message));
          receive(std::move(message));
        },
        may_send);
    links->on_token("secret");
    return links;
  }
  static wire::CommitMessage message(wire::MigrationId id, wire::Role from, wire::Role to, wire::Body body) {
    return wire::CommitMessage(id, 1, 1, from, to, std::move(body));
  }
  tls::Certificates certificates_;
  std::shared_ptr<tls::DeniedSerials> denied_ = std::make_shared<tls::DeniedSerials>();
  std::map<std::string, std::string> serials_;  // the certificates' serials by node
  std::vector<wire::CommitMessage> of_ranks_;   // the messages of ranks that node b received
};

wire::CommitMessage of_rank(std::uint32_t rank, const gang::Body& body) {
  return {9, 4, 1, gang::Party(gang::Role::kBystander, rank), gang::Party(gang::Role::kTarget, 1), body};
}

TEST_F(CertifiedPeerLinksTest, MessageForARankOfAnotherNodeIsDropped) {
  auto a = make("a", "a", heard_a_);
  auto b = make("b", "b", heard_b_);
  auto c = make("c", "c", heard_a_);
  a->add(9, "b", b->address(), "secret");
  a->add(9, "c", c->address(), "secret");
  c->add(9, "b", b->address(), "secret");
  run_until(io_, [&] { return c->send("b", of_rank(0, gang::Held(2))); });
  run_until(io_, [&] { return a->send("b", of_rank(2, gang::Held(2))); });
  EXPECT_TRUE(a->send("b", of_rank(0, gang::Gone(2))));
  run_until(io_, [&] { return !of_ranks_.empty(); });
  ASSERT_EQ(of_ranks_.size(), 1u);
  EXPECT_EQ(gang::name_of(of_ranks_[0].body), "Gone");
  a->drop(9);
  EXPECT_FALSE(a->send("c", of_rank(0, gang::Gone(2))));
}

TEST_F(CertifiedPeerLinksTest, CoordinatorMessageFromAPeerEndsTheConnection) {
  const gang::Party rank(gang::Role::kTarget, 1);
  wire::CommitMessage with_info = of_rank(0, gang::Query{});
  with_info.asks_for_info = true;
  for (const auto& sent : {wire::CommitMessage(9, 4, 1, gang::Party(), rank, gang::Withdraw{}), with_info}) {
    auto a = make("a", "a", heard_a_);
    auto b = make("b", "b", heard_b_);
    a->add(9, "b", b->address(), "secret");
    run_until(io_, [&] { return a->send("b", sent); });
    run_until(io_, [&] { return !a->send("b", of_rank(0, gang::Held(2))); });
  }
  EXPECT_TRUE(of_ranks_.empty());
}

template <std::size_t... I>
std::vector<wire::Body> bodies_of(std::index_sequence<I...>) {
  return {wire::Body(std::in_place_index<I>)...};
}

// Returns one message body of each kind.
std::vector<wire::Body> all_bodies() {
  auto bodies = bodies_of(std::make_index_sequence<std::variant_size_v<wire::Body>>());
  bodies.emplace_back(wire::Closed(wire::Side::kTarget));
  return bodies;
}

TEST_F(CertifiedPeerLinksTest, LinkOfADeniedCertificateIsClosedPermanently) {
  using wire::Role;
  auto a = make("a", "a", heard_a_);
  auto b = make("b", "b", heard_b_);
  auto c = make("c", "c", heard_a_);
  a->add(5, "b", b->address(), "secret");
  c->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return a->send("b", runs(Role::kSource, Role::kTarget, 3)); });
  run_until(io_, [&] { return c->send("b", runs(Role::kSource, Role::kTarget, 3)); });
  ASSERT_TRUE(denied_->replace({serials_.at("a")}));
  b->close_denied();
  run_until(io_, [&] { return !a->send("b", runs(Role::kSource, Role::kTarget, 3)); });
  EXPECT_FALSE(b->send("a", runs(Role::kTarget, Role::kSource, 2)));
  EXPECT_TRUE(b->send("c", runs(Role::kTarget, Role::kSource, 2)));
  // A node that dials now. Node d dials later; when d is connected, b has decided about the first node.
  auto lost = make("lost", "lost", heard_a_);
  auto d = make("d", "d", heard_a_);
  ASSERT_TRUE(denied_->replace({serials_.at("lost")}));
  lost->add(5, "b", b->address(), "secret");
  d->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return d->send("b", runs(Role::kSource, Role::kTarget, 3)); });
  EXPECT_FALSE(b->send("lost", runs(Role::kTarget, Role::kSource, 2)));
}

TEST_F(CertifiedPeerLinksTest, MessagesOfAPeerForAnotherSideOrMigrationAreDropped) {
  using wire::Role;
  auto a = make("a", "a", heard_a_);
  auto b = make("b", "b", heard_b_);
  a->add(5, "b", b->address(), "secret");
  const auto good = runs(Role::kSource, Role::kTarget, 3);
  run_until(io_, [&] { return a->send("b", good); });
  // Sends each kind of message from and to each party, of this migration and of another, all before one more
  // valid message.
  std::size_t forged = 0;
  for (const wire::Body& body : all_bodies())
    for (const Role from : {Role::kCoordinator, Role::kSource, Role::kTarget})
      for (const Role to : {Role::kCoordinator, Role::kSource, Role::kTarget})
        for (const wire::MigrationId id : {5, 6}) {
          if (id == 5 && from == Role::kSource && to == Role::kTarget) continue;
          const wire::CommitMessage sent = message(id, from, to, body);
          if (!wire::decode_commit(wire::encode_commit(sent))) continue;
          EXPECT_TRUE(a->send("b", sent));
          ++forged;
        }
  EXPECT_GT(forged, 100U);  // the decoder refuses the other messages
  EXPECT_TRUE(a->send("b", runs(Role::kSource, Role::kTarget, 5)));
  run_until(io_, [&] { return heard_b_.size() >= 2; });
  ASSERT_EQ(heard_b_.size(), 2u);
  EXPECT_EQ(std::get<wire::Ran>(heard_b_[0].body).k, 3u);
  EXPECT_EQ(std::get<wire::Ran>(heard_b_[1].body).k, 5u);
}

// The driver of node b receives a flood from node a: about unknown migrations, and about a known migration.
TEST_F(CertifiedPeerLinksTest, FloodForUnknownMigrationsIsIgnoredAndAKnownMigrationContinues) {
  using wire::Role;
  Quiet effects;
  asio::thread_pool disk(1);
  auto journal = migration::Journal::open(folder_ / "journal");
  ASSERT_TRUE(journal);
  std::optional<HandoverDriver> driver;
  driver.emplace(io_, disk, *std::move(journal), migration::Timing{}, effects,
                 [](const Error& error) { ADD_FAILURE() << error.to_string(); });
  ASSERT_TRUE(run_until_done(io_, driver->restore()));
  auto a = make("a", "a", heard_a_);
  std::size_t most_waiting = 0;
  auto b = make("b", "b", [&](wire::CommitMessage heard) {
    driver->on_message(std::move(heard));
    most_waiting = std::max(most_waiting, driver->waiting());
  });
  a->add(5, "b", b->address(), "secret");
  driver->on_message(message(5, Role::kCoordinator, Role::kTarget, wire::Prepare({}, wire::Bytes(4))));
  run_until(io_, [&] { return effects.performed > 0; });
  const auto query = [](wire::MigrationId id) {
    return message(id, Role::kSource, Role::kTarget, wire::Query());
  };
  run_until(io_, [&] { return a->send("b", query(5)); });
  constexpr wire::MigrationId kFlood = 20'000;
  for (wire::MigrationId id = 100; id < 100 + kFlood; ++id) {
    ASSERT_TRUE(a->send("b", query(id)));
    ASSERT_TRUE(a->send("b", query(5)));
  }
  ASSERT_TRUE(a->send("b", message(5, Role::kSource, Role::kTarget,
                                   wire::Query(wire::Reason(ErrorCode::kAborted, "enough")))));
  // The last message may be dropped; the protocol repeats it.
  run_until(io_, [&] {
    const auto* state = driver->handovers().target(5);
    const bool given_up = state != nullptr && migration::is_closed(*state);
    if (!given_up && driver->waiting() == 0)
      a->send("b", message(5, Role::kSource, Role::kTarget,
                           wire::Query(wire::Reason(ErrorCode::kAborted, "enough"))));
    return given_up;
  });
  EXPECT_LE(most_waiting, HandoverDriver::kMaxQueued);
  EXPECT_EQ(driver->handovers().newest(), 5u);
  disk.join();
  driver.reset();
  auto left = migration::Journal::open(folder_ / "journal");
  ASSERT_TRUE(left);
  const auto records = left->records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, migration::RecordKind::kRelinquished);
}

TEST_F(CertifiedPeerLinksTest, AMessageTooLargeForAgentsEndsTheConnection) {
  using wire::Role;
  auto a = make("a", "a", heard_a_);
  auto b = make("b", "b", heard_b_);
  a->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return a->send("b", runs(Role::kSource, Role::kTarget, 3)); });
  const wire::Reason large(ErrorCode::kAborted, std::string(100'000, 'x'));
  EXPECT_TRUE(a->send("b", message(5, Role::kSource, Role::kTarget, wire::Query(large))));
  EXPECT_TRUE(a->send("b", runs(Role::kSource, Role::kTarget, 5)));
  run_until(io_, [&] { return !a->send("b", runs(Role::kSource, Role::kTarget, 7)); });
  for (const wire::CommitMessage& heard : heard_b_) EXPECT_EQ(std::get<wire::Ran>(heard.body).k, 3u);
}

TEST_F(CertifiedPeerLinksTest, MessagesOfAnUninvolvedNodeAreRefused) {
  auto a = make("a", "a", heard_a_);
  auto b = make("b", "b", heard_b_);
  auto c = make("c", "c", heard_a_);
  auto as_a = make("a", "c", heard_a_);  // claims to be node a, with the certificate of node c
  c->add(5, "b", b->address(), "secret");
  as_a->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return c->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 3)); });
  a->add(5, "b", b->address(), "secret");
  run_until(io_, [&] { return a->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 5)); });
  run_until(io_, [&] { return !heard_b_.empty(); });
  EXPECT_FALSE(as_a->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 7)));
  ASSERT_EQ(heard_b_.size(), 1u);
  EXPECT_EQ(std::get<wire::Ran>(heard_b_[0].body).k, 5u);
}

TEST_F(CertifiedPeerLinksTest, HelloIsSentOnlyToTheExpectedNode) {
  auto a = make("a", "a", heard_a_);
  auto impostor = make("b", "c", heard_b_);  // listens at the former address of node b
  auto b = make("b", "b", heard_b_);
  a->add(5, "b", impostor->address(), "secret");
  a->add(7, "b", b->address(), "secret");
  run_until(io_, [&] { return a->send("b", runs(wire::Role::kSource, wire::Role::kTarget, 3)); });
  EXPECT_FALSE(impostor->send("a", runs(wire::Role::kTarget, wire::Role::kSource, 3)));
}

TEST_F(CertifiedPeerLinksTest, ThePortIsUnchangedAfterARestart) {
  const std::string first = make("a", "a", heard_a_)->address();
  const std::string second = make("a", "a", heard_a_)->address();
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace ckpt::agent
