#include "listing.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cairn/error.h"
#include "cairn/glob.h"
#include "json.h"
#include "output.h"
#include "text.h"

namespace cairn::cli {
namespace {

template <class Summary>
std::vector<std::uint32_t> pick(const std::vector<Summary>& all, const std::string& glob, Order order) {
  std::vector<std::uint32_t> picked;
  picked.reserve(glob.empty() ? all.size() : 0);
  for (std::uint32_t i = 0; i < all.size(); ++i)
    if (glob.empty() || matches_glob(glob, all[i].name)) picked.push_back(i);
  if (order == Order::kName) {
    std::stable_sort(picked.begin(), picked.end(),
                     [&](auto a, auto b) { return natural_less(all[a].name, all[b].name); });
  } else if (order == Order::kSize) {
    std::stable_sort(picked.begin(), picked.end(),
                     [&](auto a, auto b) { return all[a].bytes > all[b].bytes; });
  }
  return picked;
}

std::string share(std::size_t picked, std::size_t all, std::string_view noun, bool partial) {
  return partial ? fmt::format("{} of {}", picked, counted(all, noun)) : counted(all, noun);
}

}  // namespace

Listing make_listing(const Checkpoint& checkpoint, const std::string& glob, Order order) {
  Listing listing{&checkpoint, pick(checkpoint.tensors(), glob, order),
                  pick(checkpoint.objects(), glob, order), 0, !glob.empty()};
  if (listing.partial && listing.tensors.empty() && listing.objects.empty())
    throw Error(ErrorCode::kNotFound, fmt::format("no tensor or object matches '{}'", glob));
  for (const std::uint32_t i : listing.tensors)
    listing.bytes = saturating_add(listing.bytes, listing.tensor(i).bytes);
  for (const std::uint32_t i : listing.objects)
    listing.bytes = saturating_add(listing.bytes, listing.object(i).bytes);
  return listing;
}

void print_totals(const Listing& listing, Output& out) {
  const Checkpoint& checkpoint = *listing.checkpoint;
  std::string line = share(listing.tensors.size(), checkpoint.tensors().size(), "tensor", listing.partial);
  line += ", " + share(listing.objects.size(), checkpoint.objects().size(), "object", listing.partial);
  line += fmt::format(", {}", human_bytes(listing.bytes).view());
  if (!listing.partial) {
    const std::vector<FileSummary> files = checkpoint.files();
    const auto used = std::count_if(files.begin(), files.end(), [](const auto& f) { return f.referenced; });
    line += " in " + counted(static_cast<std::uint64_t>(used), "file");
  }
  out.style(Output::Style::kBold);
  out.text(line);
  out.style(Output::Style::kPlain);
  out.put('\n');
}

void print_json(const Listing& listing, Output& out) {
  JsonWriter json(out);
  json.begin_object();
  json.member("format", name_of(listing.checkpoint->format()));
  json.key("tensors");
  json.begin_array();
  for (const std::uint32_t i : listing.tensors) {
    const TensorSummary& tensor = listing.tensor(i);
    json.new_line();
    json.begin_object();
    json.member("name", tensor.name);
    json.member("dtype", name_of(tensor.dtype));
    json.member("shape", tensor.shape);
    json.member("bytes", tensor.bytes);
    json.key("chunks");
    json.begin_array();
    for (const ChunkPlace& chunk : listing.checkpoint->chunks(i)) {
      json.begin_object();
      json.member("offsets", chunk.box.offsets);
      json.member("sizes", chunk.box.sizes);
      json.member("file", std::string_view(chunk.file));
      json.member("offset", chunk.offset);
      json.member("length", chunk.length);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.key("objects");
  json.begin_array();
  for (const std::uint32_t i : listing.objects) {
    json.new_line();
    json.begin_object();
    json.member("name", listing.object(i).name);
    json.member("bytes", listing.object(i).bytes);
    json.end_object();
  }
  json.end_array();
  json.member("total_bytes", listing.bytes);
  json.end_object();
  out.put('\n');
}

}  // namespace cairn::cli
