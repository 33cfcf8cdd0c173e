// The plain listing: one line an entry, in columns.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "listing.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

// The widths of the columns. Names and shapes beyond a bound do not stretch the column of all others:
// their own line runs over.
struct Widths {
  static constexpr std::size_t kBytes = 10;
  std::size_t name = 4;
  std::size_t dtype = 6;
  std::size_t shape = 5;
  std::size_t chunks = 6;
  std::size_t files = 5;
  bool plain_names = true;  // every name shows as it is
};

std::size_t shown_width(std::string_view name, Widths& w) {
  if (is_plain(name)) return name.size();
  w.plain_names = false;
  return width_of(visible(name));
}

Widths measure(const Listing& listing, const Output& out) {
  constexpr std::size_t kLongestShape = 40;
  constexpr std::size_t kOtherColumns = 50;  // about, with their gaps
  const std::size_t longest_name =
      out.is_terminal() ? std::max<std::size_t>(out.columns(), kOtherColumns + 20) - kOtherColumns : 120;
  Widths w;
  std::uint32_t chunks = 0;
  std::uint32_t files = 0;
  for (const std::uint32_t i : listing.tensors) {
    const TensorSummary& tensor = listing.tensor(i);
    w.name = std::max(w.name, std::min(shown_width(tensor.name, w), longest_name));
    w.dtype = std::max(w.dtype, name_of(tensor.dtype).size());
    w.shape = std::max(w.shape, std::min(width_of(tensor.shape), kLongestShape));
    chunks = std::max(chunks, tensor.chunks);
    files = std::max(files, tensor.files);
  }
  for (const std::uint32_t i : listing.objects)
    w.name = std::max(w.name, std::min(shown_width(listing.object(i).name, w), longest_name));
  w.chunks = std::max(w.chunks, digits(chunks));
  w.files = std::max(w.files, digits(files));
  return w;
}

class ListingTable {
 public:
  ListingTable(const Listing& listing, Output& out)
      : listing_(listing), out_(out), w_(measure(listing, out)) {
    dtype_at_ = w_.name + kGap;
    shape_at_ = dtype_at_ + w_.dtype + kGap;
    bytes_end_ = shape_at_ + w_.shape + kGap + Widths::kBytes;
    chunks_end_ = bytes_end_ + kGap + w_.chunks;
    files_end_ = chunks_end_ + kGap + w_.files;
  }

  void header() {
    out_.style(Output::Style::kBold);
    left("name", w_.name);
    left("dtype", w_.dtype);
    left("shape", w_.shape);
    right("bytes", Widths::kBytes);
    right("chunks", w_.chunks + kGap);
    right("files", w_.files + kGap);
    out_.style(Output::Style::kPlain);
    out_.put('\n');
  }

  void tensor(const TensorSummary& t) {
    if (w_.plain_names && t.name.size() <= w_.name && width_of(t.shape) <= w_.shape) return fitting_tensor(t);
    name(t.name);
    left(name_of(t.dtype), w_.dtype);
    put_shape(out_, t.shape);
    fill(width_of(t.shape), w_.shape + kGap);
    right(human_bytes(t.bytes).view(), Widths::kBytes);
    count(t.chunks, w_.chunks + kGap);
    count(t.files, w_.files + kGap);
    out_.put('\n');
  }

  void object(const ObjectSummary& o) {
    name(o.name);
    left("object", w_.dtype);
    left("-", w_.shape);
    right(human_bytes(o.bytes).view(), Widths::kBytes);
    right("-", w_.chunks + kGap);
    right("-", w_.files + kGap);
    out_.put('\n');
  }

  void chunks(std::uint32_t tensor) {
    for (const ChunkPlace& chunk : listing_.checkpoint->chunks(tensor)) {
      out_.text("    ");
      out_.text(to_string(chunk.box));
      if (chunk.file.empty()) {
        out_.text("  no place recorded\n");
        continue;
      }
      out_.text("  in ");
      put_visible(out_, chunk.file);
      out_.text(" at ");
      out_.number(chunk.offset);
      out_.text(", ");
      out_.number(chunk.length);
      out_.text(" bytes\n");
    }
  }

 private:
  static constexpr std::size_t kGap = 2;

  // The same line when all of it stays inside its columns, as nearly all do: a listing of a hundred
  // thousand tensors takes half the time.
  void fitting_tensor(const TensorSummary& t) {
    char* line = out_.room(files_end_ + 1);
    std::memset(line, ' ', files_end_);
    line[files_end_] = '\n';
    std::memcpy(line, t.name.data(), t.name.size());
    const std::string_view dtype = name_of(t.dtype);
    std::memcpy(line + dtype_at_, dtype.data(), dtype.size());
    write_shape(line + shape_at_, t.shape);
    const ShortText bytes = human_bytes(t.bytes);
    std::memcpy(line + bytes_end_ - bytes.size, bytes.data, bytes.size);
    write_number_before(line + chunks_end_, t.chunks);
    write_number_before(line + files_end_, t.files);
  }

  static void write_number_before(char* end, std::uint32_t n) {
    do *--end = static_cast<char>('0' + n % 10);
    while ((n /= 10) != 0);
  }

  static void write_shape(char* to, const Shape& shape) {
    *to++ = '[';
    for (std::size_t i = 0; i < shape.rank(); ++i) {
      if (i > 0) {
        *to++ = ',';
        ++to;  // the space is there
      }
      const fmt::format_int text(shape[i]);
      std::memcpy(to, text.data(), text.size());
      to += text.size();
    }
    *to = ']';
  }

  void fill(std::size_t used, std::size_t width) {
    if (used < width) {
      out_.repeat(' ', width - used);
    } else {
      out_.text("  ");
    }
  }
  void left(std::string_view text, std::size_t width) {
    out_.text(text);
    fill(text.size(), width + kGap);
  }
  void right(std::string_view text, std::size_t width) {
    if (text.size() < width) out_.repeat(' ', width - text.size());
    out_.text(text);
  }
  void count(std::uint32_t n, std::size_t width) {
    const std::size_t size = digits(n);
    if (size < width) out_.repeat(' ', width - size);
    out_.number(std::uint64_t{n});
  }
  void name(std::string_view text) {
    if (is_plain(text)) return left(text, w_.name);
    const std::string shown = visible(text);
    out_.text(shown);
    fill(width_of(shown), w_.name + kGap);
  }

  const Listing& listing_;
  Output& out_;
  Widths w_;
  // Where columns start, or end if they are set to the right.
  std::size_t dtype_at_ = 0;
  std::size_t shape_at_ = 0;
  std::size_t bytes_end_ = 0;
  std::size_t chunks_end_ = 0;
  std::size_t files_end_ = 0;
};

}  // namespace

void print_table(const Listing& listing, const TableOptions& options, Output& out) {
  ListingTable table(listing, out);
  table.header();
  for (const std::uint32_t i : listing.tensors) {
    table.tensor(listing.tensor(i));
    if (options.chunks) table.chunks(i);
  }
  for (const std::uint32_t i : listing.objects) table.object(listing.object(i));
}

}  // namespace cairn::cli
