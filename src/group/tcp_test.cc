#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <latch>
#include <list>
#include <thread>

#include "cairn/tcp_group.h"
#include "group/handshake.h"
#include "group/socket.h"
#include "testing/check_group.h"
#include "testing/errors.h"
#include "testing/tcp_groups.h"

namespace cairn {
namespace {

using namespace std::chrono_literals;

constexpr auto kNever = 10min;  // longer than any of these tests may take

Step step_in(std::uint64_t number, std::chrono::nanoseconds time = kNever) {
  return {number, Step::in(time)};
}

// Both ranks of a group talk, in both directions.
void expect_talk(Group& zero, Group& one, std::uint64_t number) {
  std::thread other([&] { EXPECT_EQ(one.all_gather("b", step_in(number)).at(0), "a"); });
  EXPECT_EQ(zero.all_gather("a", step_in(number)).at(1), "b");
  other.join();
}

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

Socket connect_to(const std::string& addresses) {
  const std::size_t last = addresses.rfind(',');
  const auto address = SocketAddress::parse(addresses.substr(last == std::string::npos ? 0 : last + 1));
  Socket socket = dial(address.value());
  pollfd ready{socket.get(), POLLOUT, 0};
  EXPECT_EQ(::poll(&ready, 1, 60'000), 1);
  EXPECT_EQ(connect_error(socket), 0);
  return socket;
}

// A process in which `body` runs as rank 1 of a group of two; this one is rank 0.
class ForkedRank {
 public:
  explicit ForkedRank(const std::function<void(Group&)>& body) {
    std::array<TcpListener, 2> listeners;
    TcpGroupOptions options{.addresses = {listeners[0].addresses(), listeners[1].addresses()},
                            .key = random_group_key(),
                            .silence = kNever};
    pid_ = ::fork();
    if (pid_ == 0) {
      // The listener was opened by the parent and closed by the fork: this rank has another one.
      TcpListener own;
      options.addresses[1] = own.addresses();
      tell(own.addresses());
      options.rank = 1;
      try {
        const auto group = tcp_group(std::move(own), options);
        body(*group);
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    options.addresses[1] = hear();
    group_ = tcp_group(std::move(listeners[0]), options);
  }
  ~ForkedRank() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  Group& rank_0() { return *group_; }
  pid_t pid() const { return pid_; }
  // From the process, one line each.
  void tell(const std::string& text) {
    ASSERT_EQ(::write(pipe_[1], (text + "\n").c_str(), text.size() + 1),
              static_cast<ssize_t>(text.size() + 1));
  }
  std::string hear() {
    std::string text;
    for (char c = 0; ::read(pipe_[0], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

 private:
  std::array<int, 2> pipe_ = [] {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    return ends;
  }();
  pid_t pid_ = -1;
  std::unique_ptr<Group> group_;
};

// Stands between two ranks and cuts every connection after so many bytes, so many times.
class Scissors {
 public:
  Scissors(std::string to, int cuts, std::size_t after) : to_(std::move(to)), cuts_(cuts), after_(after) {
    thread_ = std::thread([this] { run(); });
  }
  ~Scissors() {
    done_ = true;
    thread_.join();
  }
  std::string address() const {
    return SocketAddress::parse("127.0.0.1:1")->with_port(local_address(listener_).port()).text();
  }
  int cuts_left() const { return cuts_; }

 private:
  struct Pair {
    std::array<Socket, 2> ends;
    std::size_t carried = 0;
  };

  void run() {
    while (!done_) {
      std::vector<pollfd> polled{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_)
        for (const Socket& end : pair.ends) polled.push_back({end.get(), POLLIN, 0});
      ::poll(polled.data(), polled.size(), 10);
      for (auto pair = pairs_.begin(); pair != pairs_.end();)
        pair = carry(*pair, 0) && carry(*pair, 1) ? std::next(pair) : pairs_.erase(pair);
      if (Socket guest = accept_from(listener_)) pairs_.push_back({{std::move(guest), connect_to(to_)}});
    }
  }

  bool carry(Pair& pair, std::size_t from) {
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(pair.ends[from].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    for (ssize_t at = 0; at < got;) {
      const Socket& to = pair.ends[1 - from];
      const ssize_t sent =
          ::send(to.get(), bytes.data() + at, static_cast<std::size_t>(got - at), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return false;
      if (sent < 0) std::this_thread::sleep_for(100us);
      at += std::max<ssize_t>(sent, 0);
    }
    pair.carried += static_cast<std::size_t>(got);
    if (cuts_ == 0 || pair.carried < after_) return true;
    --cuts_;
    return false;
  }

  const std::string to_;
  std::atomic<int> cuts_;
  const std::size_t after_;
  Socket listener_ = listen_anywhere();
  std::list<Pair> pairs_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

TEST(SocketAddress, IsReadAndWritten) {
  for (const char* good : {"10.0.0.7:41234", "[2001:db8::7]:1", "127.0.0.1:65535"})
    EXPECT_EQ(SocketAddress::parse(good).value().text(), good);
  for (const char* bad : {"", "10.0.0.7", "10.0.0.7:", "10.0.0.7:0", "10.0.0.7:65536", "10.0.0.7:1x",
                          "host:1", "2001:db8::7:1", "[10.0.0.7]:1", "[]:1", ":1", "[::1:1"})
    EXPECT_EQ(SocketAddress::parse(bad), std::nullopt) << bad;
}

TEST(Handshake, ProofsAreSipHash) {
  GroupKey key;
  std::array<std::byte, 15> message;
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i);
  EXPECT_EQ(sip_hash(key, message), 0xa129ca6149be45e5);  // the example of the paper
  const Hello hello = make_hello(0, 1, 2);
  const Challenge challenge = make_challenge();
  EXPECT_NE(proof_of(key, End::kDialler, hello, challenge), proof_of(key, End::kListener, hello, challenge));
  EXPECT_NE(proof_of(key, End::kDialler, hello, challenge),
            proof_of(key, End::kDialler, hello, make_challenge()));
}

TEST(TcpGroup, ARankThatSaysNothingIsGivenUp) {
  auto groups = tcp_groups_of(2, 1s);
  const Error e = error_of([&] { groups[0]->gather("x", 0, step_in(1)); });
  EXPECT_EQ(e.code(), ErrorCode::kTimeout);
  EXPECT_EQ(e.rank(), 1);
  EXPECT_TRUE(mentions(e, "rank 1 has been silent for 1 s")) << e.what();
  expect_talk(*groups[0], *groups[1], 2);
}

TEST(TcpGroup, ARankThatIsAtWorkIsWaitedForAndSoIsOneThatWaits) {
  auto groups = tcp_groups_of(3, 2s);
  std::thread one([&] {
    groups[1]->gather("quick", 0, step_in(1));
    EXPECT_EQ(groups[1]->scatter({}, 0, step_in(2)), "b");  // of rank 0, which waits for rank 2
  });
  std::thread two([&] {
    {
      const auto alive = groups[2]->stay_alive();
      std::this_thread::sleep_for(5s);
    }
    groups[2]->gather("slow", 0, step_in(1));
    EXPECT_EQ(groups[2]->scatter({}, 0, step_in(2)), "c");
  });
  EXPECT_EQ(groups[0]->gather("", 0, step_in(1)).at(2), "slow");
  groups[0]->scatter({"a", "b", "c"}, 0, step_in(2));
  one.join();
  two.join();
}

TEST(TcpGroup, ARankThatDiesIsNoticedAtOnce) {
  ForkedRank other([](Group& group) {
    group.gather("first", 0, step_in(1));
    std::this_thread::sleep_for(kNever);
  });
  EXPECT_EQ(other.rank_0().gather("", 0, step_in(1)).at(1), "first");
  ::kill(other.pid(), SIGKILL);
  const Error e = error_of([&] { other.rank_0().gather("", 0, step_in(2)); });
  EXPECT_EQ(e.code(), ErrorCode::kCancelled);
  EXPECT_EQ(e.rank(), 1);
  EXPECT_EQ(error_of([&] { other.rank_0().hint(1, '!', step_in(3)); }).code(), ErrorCode::kCancelled);
}

TEST(TcpGroup, ADeathIsNoticedAlsoBeforeItsPlaceInTheQueue) {
  auto groups = tcp_groups(3);
  const auto alive = groups[1]->stay_alive();  // and will not come
  std::thread gone([&] {
    std::this_thread::sleep_for(200ms);
    groups[2].reset();
  });
  EXPECT_EQ(error_of([&] { groups[0]->gather("", 0, step_in(1)); }).rank(), 2);
  gone.join();
}

TEST(TcpGroup, ADeadRankIsNoticedThoughAChildOfItLives) {
  std::array<int, 2> pids{};
  ASSERT_EQ(::pipe(pids.data()), 0);
  ForkedRank other([&](Group& group) {
    group.gather("first", 0, step_in(1));
    const pid_t child = ::fork();
    if (child == 0) {
      std::this_thread::sleep_for(kNever);
      ::_exit(0);
    }
    if (::write(pids[1], &child, sizeof(child)) != sizeof(child)) ::_exit(1);
    std::this_thread::sleep_for(kNever);
  });
  EXPECT_EQ(other.rank_0().gather("", 0, step_in(1)).at(1), "first");
  pid_t child = 0;
  ASSERT_EQ(::read(pids[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::kill(other.pid(), SIGKILL);
  EXPECT_EQ(error_of([&] { other.rank_0().gather("", 0, step_in(2)); }).code(), ErrorCode::kCancelled);
  EXPECT_EQ(::kill(child, SIGKILL), 0);
  ::close(pids[0]);
  ::close(pids[1]);
}

TEST(TcpGroup, AForkedProcessHasNoGroupAndHarmsNone) {
  auto groups = tcp_groups(2);
  expect_talk(*groups[0], *groups[1], 1);
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      groups[0]->gather("from the grave", 1, step_in(2));
    } catch (const Error& e) {
      refused = e.code() == ErrorCode::kInvalidArgument;
    }
    groups.clear();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  expect_talk(*groups[0], *groups[1], 3);
}

TEST(TcpGroup, AConnectionThatBreaksIsMadeAgainAndNothingIsLost) {
  TcpListener zero, one;
  const GroupKey key = random_group_key();
  // Whoever of them dials.
  Scissors before_0(zero.addresses(), 6, 3 << 20), before_1(one.addresses(), 6, 3 << 20);
  const std::vector<std::string> for_0{zero.addresses(), before_1.address()};
  const std::vector<std::string> for_1{before_0.address(), one.addresses()};
  const auto rank_0 = tcp_group(std::move(zero), {.rank = 0, .addresses = for_0, .key = key});
  const auto rank_1 = tcp_group(std::move(one), {.rank = 1, .addresses = for_1, .key = key});
  std::string large(std::size_t{16} << 20, '.');
  for (std::size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>('a' + i % 26);
  for (std::uint64_t number = 1; number <= 8; ++number) {
    std::thread other([&] { rank_1->gather(number % 2 == 0 ? "small" : large, 0, step_in(number)); });
    const std::string got = rank_0->gather("", 0, step_in(number)).at(1);
    EXPECT_TRUE(got == (number % 2 == 0 ? "small" : large)) << number << ": " << got.size();
    other.join();
  }
  EXPECT_EQ(std::min(before_0.cuts_left(), before_1.cuts_left()), 0);  // or nothing large came through
}

TEST(TcpGroup, RanksThatDialEachOtherAtOnceTalk) {
  for (int i = 0; i < 30; ++i) {
    auto groups = tcp_groups(2);
    std::latch start(2);
    const auto dial_at_once = [&](int rank) {
      start.arrive_and_wait();
      groups[static_cast<std::size_t>(rank)]->hint(1 - rank, '!', step_in(1));
    };
    std::thread other([&] { dial_at_once(1); });
    dial_at_once(0);
    other.join();
    expect_talk(*groups[0], *groups[1], 2);
    expect_talk(*groups[0], *groups[1], 3);
  }
}

TEST(TcpGroup, StrangersGetNothingAndKeepNobodyOut) {
  std::array<TcpListener, 2> listeners;
  const std::vector<std::string> all{listeners[0].addresses(), listeners[1].addresses()};
  const GroupKey key = random_group_key();
  const auto zero = tcp_group(std::move(listeners[0]), {.rank = 0, .addresses = all, .key = key});
  const auto one = tcp_group(std::move(listeners[1]), {.rank = 1, .addresses = all, .key = key});
  std::vector<Socket> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(connect_to(all[0]));

  Socket rude = connect_to(all[0]);
  const std::string garbage(1 << 16, 'g');
  (void)::send(rude.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  char byte = 0;
  pollfd ready{rude.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  EXPECT_LE(::recv(rude.get(), &byte, 1, MSG_DONTWAIT), 0);

  // One who knows how ranks greet each other, but not the key.
  Socket clever = connect_to(all[0]);
  const Hello hello = make_hello(1, 0, 2);
  ASSERT_EQ(::send(clever.get(), &hello, sizeof(hello), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(hello)));
  Challenge challenge;
  ready = {clever.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  ASSERT_EQ(::recv(clever.get(), challenge.data(), challenge.size(), 0),
            static_cast<ssize_t>(challenge.size()));
  const Proof proof{proof_of(random_group_key(), End::kDialler, hello, challenge), 0};
  ASSERT_EQ(::send(clever.get(), &proof, sizeof(proof), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(proof)));
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  EXPECT_LE(::recv(clever.get(), &byte, 1, MSG_DONTWAIT), 0);

  expect_talk(*zero, *one, 1);
  EXPECT_LT(entries_of("/proc/self/fd"), 400U);
}

TEST(TcpGroup, WithAnotherKeyNobodyIsLetIn) {
  std::array<TcpListener, 2> listeners;
  const std::vector<std::string> all{listeners[0].addresses(), listeners[1].addresses()};
  const auto zero = tcp_group(std::move(listeners[0]),
                              {.rank = 0, .addresses = all, .key = random_group_key(), .silence = 1s});
  const auto one = tcp_group(std::move(listeners[1]),
                             {.rank = 1, .addresses = all, .key = random_group_key(), .silence = 1s});
  one->gather("let me in", 0, step_in(1));
  EXPECT_EQ(error_of([&] { zero->gather("", 0, step_in(1)); }).rank(), 1);
  EXPECT_EQ(zero->peek(1, step_in(1)), std::nullopt);
}

TEST(TcpGroup, LargeLettersOfManyRanksCome) {
  auto groups = tcp_groups(4);
  const std::size_t size = std::size_t{48} << 20;
  std::vector<std::thread> others;
  for (int rank = 1; rank < 4; ++rank) {
    others.emplace_back([&, rank] {
      Group& group = *groups[static_cast<std::size_t>(rank)];
      group.gather(group_check::letter(rank, 0, size), 0, step_in(1));
      EXPECT_TRUE(group.broadcast("", 0, step_in(2)) == group_check::letter(0, 0, size));
    });
  }
  const std::vector<std::string> all = groups[0]->gather("", 0, step_in(1));
  for (int rank = 1; rank < 4; ++rank)
    EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == group_check::letter(rank, 0, size)) << rank;
  groups[0]->broadcast(group_check::letter(0, 0, size), 0, step_in(2));
  for (std::thread& other : others) other.join();
}

TEST(TcpGroup, WhoeverWaitsForARankThatLeavesHearsItAtOnce) {
  auto groups = tcp_groups(2);
  std::thread leaving([&] {
    std::this_thread::sleep_for(100ms);
    groups[1].reset();
  });
  EXPECT_EQ(error_of([&] { groups[0]->gather("", 0, step_in(1)); }).code(), ErrorCode::kCancelled);
  leaving.join();
}

TEST(TcpGroup, GroupsOfTheSameRanksDoNotMix) {
  auto first = tcp_groups(2);
  auto second = tcp_groups(2);
  first[1]->gather("of the first", 0, step_in(1));
  second[1]->gather("of the second", 0, step_in(1));
  EXPECT_EQ(second[0]->gather("", 0, step_in(1)).at(1), "of the second");
  EXPECT_EQ(first[0]->gather("", 0, step_in(1)).at(1), "of the first");
}

TEST(TcpGroup, LeavesNoThreadAndNoDescriptor) {
  const std::size_t threads = entries_of("/proc/self/task");
  const std::size_t descriptors = entries_of("/proc/self/fd");
  for (int i = 0; i < 20; ++i) {
    auto groups = tcp_groups(2);
    expect_talk(*groups[0], *groups[1], 1);
    EXPECT_GT(entries_of("/proc/self/task"), threads);
    if (i % 2 == 0) groups[0].reset();
  }
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
}

TEST(TcpListener, SaysWhenThereIsNoDescriptorLeft) {
#ifdef CAIRN_SANITIZED
  GTEST_SKIP() << "sanitizers need descriptors themselves: without one they call a sound object broken";
#endif
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  rlimit none = usual;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Error e = error_of([] { TcpListener listener; });
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(e.code(), ErrorCode::kIo);
  EXPECT_EQ(e.os_error(), EMFILE);
}

TEST(TcpGroup, RefusesAddressesThatAreNone) {
  const auto refused = [](int rank, std::vector<std::string> addresses) {
    return code_of([&] { tcp_group(TcpListener(), {.rank = rank, .addresses = addresses}); });
  };
  const std::string good = "127.0.0.1:1";
  EXPECT_EQ(refused(2, {good, good}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(-1, {good, good}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(0, {good, ""}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(0, {good, good + ","}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused(0, {good, "localhost:1"}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(tcp_group(TcpListener(), {.addresses = {good}})->size(), 1);
}

}  // namespace
}  // namespace cairn
