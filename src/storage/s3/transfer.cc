#include "storage/s3/transfer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "cairn/error.h"

namespace cairn::s3 {
namespace {

// What is copied into the first is sent while it is in the processor's cache; the second is as large as
// libcurl takes it, for fewer rounds of the loop.
constexpr long kSendBuffer = 512 << 10;
constexpr long kReceiveBuffer = 512 << 10;
constexpr std::size_t kMostHeaderBytes = 64 << 10;
// From here on a server is asked before the body is sent, so that a refusal does not cost it.
constexpr std::uint64_t kLeastToAskFirst = 1 << 20;
constexpr int kExpectationFailed = 417;

template <class Value> void set(CURL* easy, CURLoption option, Value value) {
  if (const CURLcode code = curl().easy_setopt(easy, option, value); code != CURLE_OK)
    throw Error(ErrorCode::kInternal,
                "libcurl does not take option " + std::to_string(option) + ": " + curl().easy_strerror(code));
}

// libcurl 7.85 calls the options otherwise than those before it.
void allow_http_alone(CURL* easy) {
  constexpr auto kProtocols = static_cast<CURLoption>(181), kAfterRedirects = static_cast<CURLoption>(182);
  constexpr long kHttpAndHttps = 3;
  if (curl().easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK) {
    set(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  } else {
    set(easy, kProtocols, kHttpAndHttps);
    set(easy, kAfterRedirects, kHttpAndHttps);
  }
}

// A line break in a value would begin a header, or a body, of somebody else's choice.
void check_header(std::string_view text) {
  const auto bad = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), bad))
    throw Error(ErrorCode::kInvalidArgument, "a header of a request cannot have control characters in it");
}

std::string_view trimmed_value(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

bool is_untrusted(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_ISSUER_ERROR || code == CURLE_SSL_INVALIDCERTSTATUS ||
         code == CURLE_SSL_CRL_BADFILE || code == CURLE_SSL_CERTPROBLEM;
}

}  // namespace

CURL* new_easy(const HttpOptions& options) {
  CURL* const easy = curl().easy_init();
  if (easy == nullptr) throw Error(ErrorCode::kInternal, "libcurl gives no handle");
  try {
    set(easy, CURLOPT_UPLOAD_BUFFERSIZE, kSendBuffer);
    set(easy, CURLOPT_BUFFERSIZE, kReceiveBuffer);
    set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    allow_http_alone(easy);
    set(easy, CURLOPT_MAXREDIRS, 5L);
    set(easy, CURLOPT_PATH_AS_IS, 1L);
    set(easy, CURLOPT_TCP_NODELAY, 1L);
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, 1000L);
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
    set(easy, CURLOPT_USERAGENT, "cairn");
    if (!options.ca_bundle.empty()) set(easy, CURLOPT_CAINFO, options.ca_bundle.c_str());
    set(easy, CURLOPT_READFUNCTION, &Transfer::on_read);
    set(easy, CURLOPT_SEEKFUNCTION, &Transfer::on_seek);
    set(easy, CURLOPT_WRITEFUNCTION, &Transfer::on_write);
    set(easy, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(easy, CURLOPT_PREREQFUNCTION, &Transfer::on_request);
  } catch (...) {
    curl().easy_cleanup(easy);
    throw;
  }
  return easy;
}

Transfer::Transfer(Exchange& exchange, Clock::time_point not_before)
    : exchange_(exchange), not_before_(not_before) {
  exchange.status = 0;
  exchange.answer_headers.clear();
  exchange.text.clear();
  exchange.received = 0;
  for (const auto& piece : exchange.body) body_size_ += piece.size();
  const auto add = [this](const std::string& line) {
    curl_slist* const longer = curl().slist_append(headers_.get(), line.c_str());
    if (longer == nullptr) throw std::bad_alloc();
    (void)headers_.release();
    headers_.reset(longer);
  };
  for (const auto& [name, value] : exchange.headers) {
    check_header(name);
    check_header(value);
    add(value.empty() ? name + ";" : name + ": " + value);
  }
  if (body_size_ < kLeastToAskFirst) add("Expect:");  // libcurl asks first for any body otherwise
}

void Transfer::take(CURL* easy, Clock::time_point now) {
  Exchange& x = exchange_;
  set(easy, CURLOPT_URL, x.url.c_str());
  set(easy, CURLOPT_HTTPGET, 1L);
  const bool with_body = body_size_ > 0 || x.method == "PUT" || x.method == "POST";
  if (with_body) {
    set(easy, CURLOPT_UPLOAD, 1L);
    set(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_size_));
  } else if (x.method == "HEAD") {
    set(easy, CURLOPT_NOBODY, 1L);
  }
  set(easy, CURLOPT_FOLLOWLOCATION, x.follow ? 1L : 0L);
  set(easy, CURLOPT_CUSTOMREQUEST, x.method.c_str());
  set(easy, CURLOPT_HTTPHEADER, headers_.get());
  set(easy, CURLOPT_READDATA, this);
  set(easy, CURLOPT_SEEKDATA, this);
  set(easy, CURLOPT_WRITEDATA, this);
  set(easy, CURLOPT_HEADERDATA, this);
  set(easy, CURLOPT_PREREQDATA, this);
  set(easy, CURLOPT_PRIVATE, this);
  set(easy, CURLOPT_ERRORBUFFER, error_.data());
  easy_ = easy;
  moved_at_ = now;
}

CURL* Transfer::release() {
  CURL* const easy = std::exchange(easy_, nullptr);
  if (easy == nullptr) return nullptr;
  curl().easy_setopt(easy, CURLOPT_HTTPHEADER, nullptr);
  curl().easy_setopt(easy, CURLOPT_ERRORBUFFER, nullptr);
  return easy;
}

std::size_t Transfer::on_read(char* to, std::size_t size, std::size_t count, void* self) {
  return static_cast<Transfer*>(self)->send(std::as_writable_bytes(std::span(to, size * count)));
}

std::size_t Transfer::send(std::span<std::byte> to) {
  std::size_t sent = 0;
  while (span_ < exchange_.body.size()) {
    const auto rest = exchange_.body[span_].subspan(in_span_);
    const std::size_t n = std::min(rest.size(), to.size() - sent);
    if (n > 0) std::memcpy(to.data() + sent, rest.data(), n);
    sent += n;
    in_span_ += n;
    if (n < rest.size()) break;
    ++span_;
    in_span_ = 0;
  }
  return sent;
}

int Transfer::on_seek(void* self, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<Transfer*>(self);
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_FAIL;
  transfer.in_span_ = static_cast<std::size_t>(offset);
  const auto& body = transfer.exchange_.body;
  for (transfer.span_ = 0; transfer.span_ < body.size(); ++transfer.span_) {
    if (transfer.in_span_ < body[transfer.span_].size()) return CURL_SEEKFUNC_OK;
    transfer.in_span_ -= body[transfer.span_].size();
  }
  return transfer.in_span_ == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}

// Nothing may be thrown through libcurl: it is kept, and the transfer breaks off when fewer bytes are taken.
std::size_t Transfer::on_write(char* from, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.receive({from, size * count});
  } catch (...) {
    transfer.failure_ = std::current_exception();
  }
  return transfer.too_long_.empty() && transfer.failure_ == nullptr ? size * count : 0;
}

void Transfer::receive(std::string_view bytes) {
  Exchange& x = exchange_;
  if (!x.into.empty() && x.status / 100 == 2) {
    if (bytes.size() > x.into.size() - x.received) return fail("the body is longer than what was asked for");
    std::memcpy(x.into.data() + x.received, bytes.data(), bytes.size());
    x.received += bytes.size();
  } else {
    if (bytes.size() > x.most_text - x.text.size())
      return fail("the answer is longer than any that makes sense");
    x.text.append(bytes);
  }
}

std::size_t Transfer::on_header(char* from, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.receive_header({from, size * count});
  } catch (...) {
    transfer.failure_ = std::current_exception();
  }
  return transfer.too_long_.empty() && transfer.failure_ == nullptr ? size * count : 0;
}

void Transfer::receive_header(std::string_view line) {
  Exchange& x = exchange_;
  header_bytes_ += line.size();
  if (header_bytes_ > kMostHeaderBytes) return fail("the answer's headers never end");
  if (line.starts_with("HTTP/")) {  // of an answer, or of one with 1xx before it
    const std::size_t at = std::min(line.find(' '), line.size() - 1) + 1;
    x.status = 0;
    std::from_chars(line.data() + at, line.data() + line.size(), x.status);
    x.answer_headers.clear();
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || line.front() == ' ' || line.front() == '\t') return;
  std::string name(line.substr(0, colon));
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  x.answer_headers.emplace_back(std::move(name), trimmed_value(line.substr(colon + 1)));
}

void Transfer::fail(std::string_view why) { too_long_ = why; }

// Called before the request is sent, each time. When a connection that was taken up again turns out to be
// dead, libcurl sends the request anew and says nothing; but the first may have been carried out, and the
// caller has to know.
int Transfer::on_request(void* self, char* /*to*/, char* /*from*/, int /*to_port*/, int /*from_port*/) {
  auto& transfer = *static_cast<Transfer*>(self);
  const int status = transfer.exchange_.status;
  const bool led_on = transfer.exchange_.follow && status / 100 == 3;
  if (transfer.requests_ > 0 && status != kExpectationFailed && !led_on) {
    transfer.again_ = true;
    return CURL_PREREQFUNC_ABORT;
  }
  ++transfer.requests_;
  transfer.exchange_.text.clear();
  return CURL_PREREQFUNC_OK;
}

bool Transfer::silent_since(Clock::time_point now, std::chrono::milliseconds silence) {
  curl_off_t up = 0;
  curl_off_t down = 0;
  curl().easy_getinfo(easy_, CURLINFO_SIZE_UPLOAD_T, &up);
  curl().easy_getinfo(easy_, CURLINFO_SIZE_DOWNLOAD_T, &down);
  const auto moved =
      static_cast<std::uint64_t>(up + down) + header_bytes_ + static_cast<std::uint64_t>(requests_);
  if (moved != moved_ || requests_ == 0) {  // while it connects, the timeout of that counts
    moved_ = moved;
    moved_at_ = now;
  }
  return now - moved_at_ >= silence;
}

void Transfer::end(Exchange::Outcome outcome, std::string_view why) {
  exchange_.outcome = outcome;
  exchange_.why = why;
}

void Transfer::end(CURLcode code) {
  using Outcome = Exchange::Outcome;
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  if (!too_long_.empty()) return end(Outcome::kTooLong, too_long_);
  if (again_) return end(Outcome::kBroken, "the server closed the connection and did not answer");
  if (code == CURLE_OK) return end(Outcome::kAnswered, "");
  // How libcurl calls one header that never ends.
  if (requests_ > 0 && code == CURLE_OUT_OF_MEMORY)
    return end(Outcome::kTooLong, "the answer's header never ends");
  const std::string_view why = error_[0] != '\0' ? error_.data() : curl().easy_strerror(code);
  if (is_untrusted(code)) return end(Outcome::kUntrusted, why);
  end(requests_ > 0 ? Outcome::kBroken : Outcome::kUnreachable, why);
}

}  // namespace cairn::s3
