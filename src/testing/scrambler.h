// Transforms of items as a caller may write them.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "cairn/transform.h"

namespace cairn {

// Turns every bit of an item over, and puts the item's name before it.
class Scrambler : public ItemTransform {
 public:
  static constexpr const char* kDescriptor = "stream.scrambled@test/1";

  std::unique_ptr<ItemEncoder> encode(const WriteItem& item, Store store) override {
    struct Encoder final : ItemEncoder {
      explicit Encoder(Store to) : store(std::move(to)) {}
      void write(ByteSpan bytes) override {
        std::string turned(as_text(bytes));
        for (char& c : turned) c = static_cast<char>(~c);
        store(as_bytes(turned));
      }
      std::vector<std::string> finish() override { return {kDescriptor}; }
      Store store;
    };
    ++encoded;
    store(as_bytes(item.index.fqn + "\n"));
    return std::make_unique<Encoder>(std::move(store));
  }

  std::unique_ptr<ItemDecoder> decode(const ReadItem& item, const std::vector<std::string>&,
                                      std::shared_ptr<const ByteSource> stored) override {
    struct Decoder final : ItemDecoder {
      std::size_t read(std::span<std::byte> to) override {
        const std::size_t count = std::min<std::uint64_t>(to.size(), source->size() - at);
        source->read_at(at, to.first(count));
        for (std::byte& b : to.first(count)) b = ~b;
        at += count;
        return count;
      }
      std::shared_ptr<const ByteSource> source;
      std::uint64_t at = 0;
    };
    ++decoded;
    auto decoder = std::make_unique<Decoder>();
    decoder->source = std::move(stored);
    decoder->at = item.storage_index.fqn.size() + 1;
    return decoder;
  }

  std::atomic<int> encoded = 0, decoded = 0;
};

// Never ends.
class Bomb : public Scrambler {
 public:
  std::unique_ptr<ItemDecoder> decode(const ReadItem&, const std::vector<std::string>&,
                                      std::shared_ptr<const ByteSource>) override {
    struct Decoder final : ItemDecoder {
      explicit Decoder(std::atomic<std::uint64_t>& given_so_far) : given(given_so_far) {}
      std::size_t read(std::span<std::byte> to) override {
        std::fill(to.begin(), to.end(), std::byte{0});
        given += to.size();
        return to.size();
      }
      std::atomic<std::uint64_t>& given;
    };
    return std::make_unique<Decoder>(given);
  }

  std::atomic<std::uint64_t> given = 0;  // bytes
};

}  // namespace cairn
