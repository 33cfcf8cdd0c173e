// Ranks over TCP.
#include "cairn/tcp_group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "cairn/error.h"
#include "group/mail.h"
#include "group/tcp_office.h"

namespace cairn {
namespace {

constexpr std::size_t kMostAddresses = 16;  // of one rank

class TcpMail final : public Mail {
 public:
  explicit TcpMail(std::unique_ptr<TcpOffice> office) : office_(std::move(office)) {}
  ~TcpMail() override {
    // In a child of fork() its thread is not there, its mutex may be held for ever, and its connections,
    // which were closed, are the parent's to end.
    if (::getpid() != owner_) (void)office_.release();
  }

  void send(int to, std::string bytes, const Step& step) override {
    office().post(to, std::move(bytes), step);
  }
  std::string receive(int from, const Step& step) override { return office().take(from, step); }
  void await_all(const Step& step) override { office().await_all(step); }
  bool looks_ahead() const override { return true; }
  std::optional<char> peek(int from, const Step& step) override { return office().peek(from, step); }
  std::shared_ptr<void> stay_alive() override { return office().stay_alive(); }

 private:
  TcpOffice& office() {
    if (::getpid() == owner_) return *office_;
    throw Error(ErrorCode::kInvalidArgument, "this group is of the process that this one was forked from");
  }

  std::unique_ptr<TcpOffice> office_;
  pid_t owner_ = ::getpid();
};

std::vector<SocketAddress> parse_addresses(std::string_view text, int rank) {
  std::vector<SocketAddress> addresses;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const auto address = SocketAddress::parse(text.substr(at, comma - at));
    if (!address || addresses.size() == kMostAddresses) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' are not the addresses of a TcpListener", text.substr(0, 1000)))
          .on_rank(rank);
    }
    addresses.push_back(*address);
    at = comma + 1;
  }
  return addresses;
}

}  // namespace

TcpListener::TcpListener() : socket_(std::make_unique<Socket>(listen_anywhere())) {
  for (const SocketAddress& address : addresses_of_host(local_address(*socket_).port(), kMostAddresses))
    addresses_ += (addresses_.empty() ? "" : ",") + address.text();
}
TcpListener::TcpListener(TcpListener&&) noexcept = default;
TcpListener& TcpListener::operator=(TcpListener&&) noexcept = default;
TcpListener::~TcpListener() = default;

std::unique_ptr<Group> tcp_group(TcpListener listener, const TcpGroupOptions& options) {
  const int size = static_cast<int>(options.addresses.size());
  if (options.rank < 0 || options.rank >= size)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("rank {} of a group of {}", options.rank, size));
  if (listener.socket_ == nullptr)
    throw Error(ErrorCode::kInvalidArgument, "the listener belongs to a group already");
  std::vector<std::vector<SocketAddress>> addresses;
  for (int rank = 0; rank < size; ++rank)
    addresses.push_back(parse_addresses(options.addresses[static_cast<std::size_t>(rank)], rank));
  if (size == 1) return solo_group();
  auto office = std::make_unique<TcpOffice>(std::move(*listener.socket_), std::move(addresses), options.rank,
                                            options.key, options.silence);
  return group_over(std::make_unique<TcpMail>(std::move(office)), options.rank, size);
}

}  // namespace cairn
