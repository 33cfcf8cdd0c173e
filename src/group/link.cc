#include "group/link.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>

namespace cairn {
namespace {

constexpr std::size_t kLinkTurn = std::size_t{8} << 20;   // bytes, before others have theirs
constexpr std::size_t kLinkPiece = std::size_t{1} << 20;  // by which a letter that comes in grows

bool only_has_to_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

std::size_t Link::head_size() const {
  switch (stage) {
    case Stage::kGuest: return sizeof(Hello);
    case Stage::kAwaitsChallenge: return sizeof(Challenge);
    case Stage::kAwaitsProof:
    case Stage::kAwaitsWelcome: return sizeof(Proof);
    default: return sizeof(Frame);
  }
}

bool Link::read(Owner& owner) {
  for (std::size_t turn = 0; turn < kLinkTurn && !ended;) {
    const ssize_t got = in_letter_ ? receive_bytes() : receive_head();
    if (got == 0) return false;
    if (got < 0) return only_has_to_wait();
    turn += static_cast<std::size_t>(got);
    if (in_letter_ ? !take_letter(owner) : !take_head(owner)) return false;
  }
  return true;
}

ssize_t Link::receive_head() {
  const ssize_t got =
      ::recv(socket_.get(), head_.data() + head_have_, head_size() - head_have_, MSG_DONTWAIT);
  if (got > 0) head_have_ += static_cast<std::size_t>(got);
  return got;
}

bool Link::take_head(Owner& owner) {
  if (head_have_ < head_size()) return true;
  head_have_ = 0;
  if (stage != Stage::kOpen) return owner.on_greeting(*this, head_.data());
  Frame frame{};
  std::memcpy(&frame, head_.data(), sizeof(frame));
  if (frame.kind != FrameKind::kLetter) return owner.on_frame(*this, frame);
  if (frame.size > kLongestLetter) return false;
  letter_in_ = frame;
  bytes_in_.emplace();
  bytes_have_ = 0;
  try {
    bytes_in_->reserve(frame.size);
  } catch (const std::bad_alloc&) {
    bytes_in_.reset();
  } catch (const std::length_error&) {
    bytes_in_.reset();
  }
  in_letter_ = true;
  return take_letter(owner);
}

ssize_t Link::receive_bytes() {
  const std::uint64_t left = letter_in_.size - bytes_have_;
  ssize_t got = 0;
  if (bytes_in_) {
    if (bytes_have_ == bytes_in_->size())
      bytes_in_->resize(bytes_have_ + std::min<std::uint64_t>(left, kLinkPiece));  // within what is reserved
    got =
        ::recv(socket_.get(), bytes_in_->data() + bytes_have_, bytes_in_->size() - bytes_have_, MSG_DONTWAIT);
  } else {
    std::array<char, 16384> nobody;
    got = ::recv(socket_.get(), nobody.data(), std::min<std::uint64_t>(left, nobody.size()), MSG_DONTWAIT);
  }
  if (got > 0) bytes_have_ += static_cast<std::uint64_t>(got);
  return got;
}

bool Link::take_letter(Owner& owner) {
  if (bytes_have_ < letter_in_.size) return true;
  in_letter_ = false;
  std::optional<std::string> bytes = std::move(bytes_in_);
  bytes_in_.reset();
  return owner.on_letter(*this, letter_in_, std::move(bytes));
}

bool Link::write(Owner& owner) {
  for (std::size_t turn = 0; turn < kLinkTurn;) {
    wants_to_write_ = true;
    const bool has_said = said_at_ < said_.size();
    if (letter_out_ == nullptr && !has_said) {
      letter_out_ = owner.next_letter(*this);
      if (letter_out_ == nullptr) {
        wants_to_write_ = false;
        return true;
      }
      frame_out_ = {FrameKind::kLetter, letter_out_->number, letter_out_->step, letter_out_->bytes.size()};
      letter_at_ = 0;
    }
    const ssize_t sent = letter_out_ != nullptr ? send_letter() : send_said();
    if (sent < 0) return only_has_to_wait();
    turn += static_cast<std::size_t>(sent);
  }
  return true;
}

ssize_t Link::send_said() {
  const ssize_t sent =
      ::send(socket_.get(), said_.data() + said_at_, said_.size() - said_at_, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) said_at_ += static_cast<std::size_t>(sent);
  if (said_at_ == said_.size()) {
    said_.clear();
    said_at_ = 0;
  }
  return sent;
}

ssize_t Link::send_letter() {
  const std::string& bytes = letter_out_->bytes;
  const std::size_t of_frame = std::min<std::uint64_t>(letter_at_, sizeof(Frame));
  const std::size_t of_bytes = letter_at_ - of_frame;
  std::array<iovec, 2> parts{};
  parts[0] = {reinterpret_cast<char*>(&frame_out_) + of_frame, sizeof(Frame) - of_frame};
  parts[1] = {const_cast<char*>(bytes.data()) + of_bytes, std::min(bytes.size() - of_bytes, kLinkTurn)};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) letter_at_ += static_cast<std::uint64_t>(sent);
  if (letter_at_ == sizeof(Frame) + bytes.size()) letter_out_.reset();
  return sent;
}

}  // namespace cairn
