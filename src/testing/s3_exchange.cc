#include "testing/s3_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>

namespace cairn::loopback {
namespace {

std::span<const std::byte> span_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The bytes of an answer's body, from where they lie.
std::vector<std::span<const std::byte>> body_of(const Answer& answer) {
  if (answer.object == nullptr) return {span_of(answer.text)};
  std::vector<std::span<const std::byte>> body;
  std::uint64_t at = 0;
  for (const Piece& piece : answer.object->pieces) {
    const std::uint64_t first = std::max(at, answer.from);
    const std::uint64_t last = std::min(at + piece.size, answer.from + answer.size);
    if (first < last) body.push_back(piece.span().subspan(first - at, last - first));
    at += piece.size;
  }
  return body;
}

std::string joined(const std::vector<std::span<const std::byte>>& parts) {
  std::string all;
  for (const auto& part : parts) all.append(reinterpret_cast<const char*>(part.data()), part.size());
  return all;
}

class Exchange {
 public:
  Exchange(Wire& wire, Site& site, std::string_view head)
      : wire_(wire), site_(site), id_(fmt::format("tx{:021x}-0", ++last_id_)) {
    try {
      request_ = incoming_of(head);
    } catch (const Refusal& refusal) {
      unreadable_ = refusal;
    }
  }

  // Whether the connection goes on.
  bool run() {
    if (unreadable_) return close_after(send(refused(request_, *unreadable_, id_)));
    const S3Fault fault = site_.begin(request_.seen);
    const bool good = carry_out(fault);
    site_.end();
    return good;
  }

 private:
  bool carry_out(const S3Fault& fault) {
    fault_ = &fault;
    site_.pause(fault.delay);
    if (!fault.raw.empty()) {
      if (request_.expects_continue || wire_.skip(request_.seen.size)) wire_.write({span_of(fault.raw)});
      return close_after(true);
    }
    if (fault.drop && !fault.carried_out) return false;
    const std::string code = !fault.code.empty()                          ? fault.code
                             : fault.status == 503 || fault.status == 429 ? "SlowDown"
                                                                          : "InternalError";
    Answer answer;
    try {
      check();
      if (fault.status != 0 && !fault.carried_out) throw Refusal{fault.status, code};
    } catch (const Refusal& refusal) {
      return refuse_early(refused(request_, refusal, id_));
    }
    if (request_.expects_continue && !wire_.write({span_of(kContinue)})) return false;
    try {
      if (request_.seen.size > site_.options.quota) {
        if (!wire_.skip(request_.seen.size)) return false;
        throw Refusal{403, "QuotaExceeded"};
      }
      const Piece body = new_piece(request_.seen.size);
      if (!wire_.read({body.bytes.get(), body.size})) return false;
      for (int times = fault.twice ? 2 : 1; times > 0; --times) answer = answer_once(body);
      if (fault.status != 0) throw Refusal{fault.status, code};
    } catch (const Refusal& refusal) {
      answer = refused(request_, refusal, id_);
    }
    if (fault.drop) return false;
    site_.pause(site_.options.latency);
    return send(std::move(answer)) && request_.keep_alive;
  }

  // The first of two is an error perhaps: only what the second one says is heard.
  Answer answer_once(const Piece& body) {
    try {
      return answer_of(request_, body, site_.shelf, site_.options, site_.now());
    } catch (const Refusal& refusal) {
      return refused(request_, refusal, id_);
    }
  }

  void check() const {
    const auto& headers = request_.seen.headers;
    const bool brings = request_.seen.method == "PUT" || request_.seen.method == "POST";
    if (headers.contains("transfer-encoding") || (brings && !headers.contains("content-length")))
      throw Refusal{411, "MissingContentLength"};
    site_.check(request_);
  }

  // Before the body was read. Who waits for leave to send it does not send it.
  bool refuse_early(Answer answer) {
    if (request_.seen.headers.contains("transfer-encoding") || request_.expects_continue) {
      request_.keep_alive = false;
      return close_after(send(std::move(answer)));
    }
    return wire_.skip(request_.seen.size) && send(std::move(answer)) && request_.keep_alive;
  }

  bool close_after(bool sent) {
    if (sent) wire_.finish();
    return false;
  }

  bool send(Answer answer) {
    static const S3Fault kNone;
    const S3Fault& fault = fault_ == nullptr ? kNone : *fault_;
    std::vector<std::span<const std::byte>> body = body_of(answer);
    std::uint64_t size = 0;
    for (const auto& part : body) size += part.size();
    if (fault.wrong_range && answer.status == 206)
      answer.headers["Content-Range"] =
          fmt::format("bytes {}-{}/{}", answer.from + 1, answer.from + answer.size, answer.object->size + 1);
    for (const auto& [name, text] : fault.headers) answer.headers[name] = text;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nx-amz-request-id: {}\r\nDate: {}\r\n", answer.status,
                                   reason_of(answer.status), id_, http_date(site_.now()));
    if (answer.status != 204) head += fmt::format("Content-Length: {}\r\n", size);
    if (!answer.text.empty()) head += "Content-Type: application/xml\r\n";
    for (const auto& [name, text] : answer.headers) head += fmt::format("{}: {}\r\n", name, text);
    head += request_.keep_alive ? "Connection: Keep-Alive\r\n\r\n" : "Connection: close\r\n\r\n";
    if (request_.seen.method == "HEAD") return wire_.write({span_of(head)});

    const bool spoilt = fault.corrupt || fault.truncate || fault.bytes_per_second > 0;
    if (!spoilt) {
      body.insert(body.begin(), span_of(head));
      return wire_.write(body);
    }
    std::string bytes = joined(body);
    if (fault.corrupt && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
    if (fault.truncate) bytes.resize(std::min<std::uint64_t>(bytes.size(), *fault.truncate));
    if (!wire_.write({span_of(head)}) || !trickle(bytes, fault.bytes_per_second)) return false;
    return fault.truncate ? close_after(true) : true;
  }

  bool trickle(const std::string& bytes, std::uint64_t per_second) {
    if (per_second == 0) return wire_.write({span_of(bytes)});
    const std::size_t step = std::max<std::uint64_t>(per_second / 50, 1);
    for (std::size_t at = 0; at < bytes.size() && !site_.stopping(); at += step) {
      if (!wire_.write({span_of(bytes).subspan(at, std::min(step, bytes.size() - at))})) return false;
      site_.pause(std::chrono::microseconds(1000000 * step / per_second));
    }
    return !site_.stopping();
  }

  inline static const std::string kContinue = "HTTP/1.1 100 CONTINUE\r\n\r\n";
  inline static std::atomic<std::uint64_t> last_id_ = 0;

  Wire& wire_;
  Site& site_;
  const std::string id_;
  Incoming request_;
  std::optional<Refusal> unreadable_;
  const S3Fault* fault_ = nullptr;
};

}  // namespace

Site::Site(S3ServerOptions wanted)
    : options(std::move(wanted)),
      shelf(options.quota, options.least_part, options.md5),
      keys_{options.access_key, options.secret_key, options.session_token} {
  for (const std::string& bucket : options.buckets) shelf.add_bucket(bucket);
}

void Site::set_fault(std::function<S3Fault(const S3Request&)> fault) {
  auto shared = std::make_shared<const std::function<S3Fault(const S3Request&)>>(std::move(fault));
  const std::lock_guard lock(mutex_);
  fault_ = std::move(shared);
}

void Site::set_keys(Keys keys) {
  const std::lock_guard lock(mutex_);
  expired_.emplace(keys_.access_key, keys_.session_token);
  keys_ = std::move(keys);
  expired_.erase({keys_.access_key, keys_.session_token});
}

S3Fault Site::begin(S3Request& request) {
  std::shared_ptr<const std::function<S3Fault(const S3Request&)>> fault;
  {
    const std::lock_guard lock(mutex_);
    request.number = ++count_;
    request.number_of_kind = ++counts_[request.kind];
    request.in_flight = ++in_flight_;
    most_in_flight_ = std::max(most_in_flight_, request.in_flight);
    fault = fault_;
  }
  return fault == nullptr || !*fault ? S3Fault{} : (*fault)(request);
}

void Site::check(const Incoming& request) const {
  Keys keys;
  {
    const std::lock_guard lock(mutex_);
    keys = keys_;
    const auto token = request.seen.headers.find("x-amz-security-token");
    if (expired_.contains({access_key_of(request), token == request.seen.headers.end() ? "" : token->second}))
      throw Refusal{400, "ExpiredToken"};
  }
  if (!keys.access_key.empty()) check_signature(request, keys, options.region, now());
}

std::map<std::string, std::uint64_t> Site::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Site::forget_counts() {
  const std::lock_guard lock(mutex_);
  counts_.clear();
  count_ = 0;
  most_in_flight_ = 0;
}

int Site::most_in_flight() const {
  const std::lock_guard lock(mutex_);
  return most_in_flight_;
}

void Site::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  stopped_.notify_all();
}

void Site::pause(std::chrono::microseconds time) {
  if (time.count() <= 0) return;
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, time, [this] { return stopping_.load(); });
}

void serve(Wire& wire, Site& site) {
  std::string head;
  while (!site.stopping() && wire.read_head(head) && Exchange(wire, site, head).run()) continue;
}

}  // namespace cairn::loopback
