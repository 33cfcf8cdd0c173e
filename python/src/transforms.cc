#include "transforms.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "cairn/error.h"
#include "python_streams.h"

namespace cairn::python {
namespace {

constexpr std::size_t kPiece = 1U << 20;  // bytes that a stream is asked for at a time

nb::module_ places() { return nb::module_::import_("cairn.torch._places"); }

nb::object offset_of(const MetadataIndex& index) {
  return index.offset ? nb::object(to_tuple(*index.offset)) : nb::none();
}
nb::object hint_of(const MetadataIndex& index) {
  return index.index ? nb::object(nb::int_(*index.index)) : nb::none();
}

nb::object to_python(const WriteItem& item) {
  nb::object dtype = nb::none(), size = nb::none(), offsets = nb::none(), sizes = nb::none();
  if (item.tensor_data) {
    dtype = to_str(name_of(item.tensor_data->properties.dtype));
    size = to_tuple(item.tensor_data->size);
    offsets = to_tuple(item.tensor_data->chunk.offsets);
    sizes = to_tuple(item.tensor_data->chunk.sizes);
  }
  return places().attr("write_item")(nb::make_tuple(to_str(item.index.fqn), offset_of(item.index),
                                                    hint_of(item.index), static_cast<int>(item.type), dtype,
                                                    size, offsets, sizes));
}

nb::object to_python(const ReadItem& item) {
  return places().attr("read_item")(
      nb::make_tuple(item.type == LoadItemType::kTensor, to_str(item.dest_index.fqn),
                     offset_of(item.dest_index), hint_of(item.dest_index), to_tuple(item.dest_offsets),
                     to_str(item.storage_index.fqn), offset_of(item.storage_index),
                     hint_of(item.storage_index), to_tuple(item.storage_offsets), to_tuple(item.lengths)));
}

// What Python's code is given to call, for as long as the item lasts. A failure of ours on the other side of
// that code is told as it was, and not as Python tells it.
class Calls {
 public:
  // Calls f, which may call back; with the GIL.
  template <class F> auto around(const F& f) {
    return with_python([&] {
      try {
        return f();
      } catch (nb::python_error&) {
        if (failure_) std::rethrow_exception(failure_);
        throw;
      }
    });
  }

  // For the callback: calls f without the GIL.
  template <class F> void inside(const F& f) {
    if (ended_) throw Error(ErrorCode::kInvalidArgument, "the item of this stream is complete");
    try {
      nb::gil_scoped_release release;
      f();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  void end() { ended_ = true; }

 private:
  bool ended_ = false;  // read and written with the GIL
  std::exception_ptr failure_;
};

// A stream of Python's for the time of one item.
class ItemStream {
 public:
  ItemStream() : calls_(std::make_shared<Calls>()) {}
  ItemStream(const ItemStream&) = delete;
  ItemStream& operator=(const ItemStream&) = delete;
  ~ItemStream() {
    nb::gil_scoped_acquire acquire;
    calls_->end();
    stream_.reset();
  }

 protected:
  std::shared_ptr<Calls> calls_;
  nb::object stream_;
};

class PythonEncoder final : public ItemEncoder, ItemStream {
 public:
  PythonEncoder(nb::handle transforms, const WriteItem& item, ItemTransform::Store store) {
    calls_->around([&] {
      nb::object take = nb::cpp_function([calls = calls_, store = std::move(store)](nb::object data) {
        Py_buffer buffer;
        if (PyObject_GetBuffer(data.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw nb::python_error();
        const std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> held(&buffer, PyBuffer_Release);
        const std::span bytes(static_cast<const std::byte*>(buffer.buf),
                              static_cast<std::size_t>(buffer.len));
        calls->inside([&] { store(bytes); });
        return bytes.size();
      });
      const nb::object made =
          transforms.attr("transform_save_stream")(to_python(item), places().attr("Sink")(take));
      stream_ = made[0];
      for (nb::handle each : nb::object(made[1])) descriptors_.push_back(to_text(each));
    });
  }

  void write(std::span<const std::byte> bytes) override {
    calls_->around([&] { write_all(stream_, bytes); });
  }

  std::vector<std::string> finish() override {
    calls_->around([&] { stream_.attr("close")(); });
    return std::move(descriptors_);
  }

 private:
  std::vector<std::string> descriptors_;
};

class PythonDecoder final : public ItemDecoder, ItemStream {
 public:
  PythonDecoder(nb::handle transforms, const ReadItem& item, const std::vector<std::string>& descriptors,
                std::shared_ptr<const ByteSource> stored) {
    calls_->around([&] {
      const std::uint64_t size = stored->size();
      nb::object fetch = nb::cpp_function([calls = calls_, stored = std::move(stored)](std::uint64_t offset,
                                                                                       std::size_t count) {
        const nb::object data = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
        if (!data.is_valid()) throw nb::python_error();
        auto* const to = reinterpret_cast<std::byte*>(PyBytes_AsString(data.ptr()));
        calls->inside([&] { stored->read_at(offset, {to, count}); });
        return data;
      });
      nb::list words;
      for (const std::string& each : descriptors) words.append(to_str(each));
      stream_ = transforms.attr("transform_load_stream")(to_python(item), words,
                                                         places().attr("Source")(size, fetch));
    });
  }

  std::size_t read(std::span<std::byte> to) override {
    return calls_->around([&] {
      std::size_t got = 0;
      while (got < to.size()) {
        const std::size_t wanted = std::min(to.size() - got, kPiece);
        const nb::object read = stream_.attr("read")(wanted);
        if (read.is_none()) break;
        const nb::object data = nb::bytes(read);
        const std::string_view bytes = bytes_of(data);
        if (bytes.empty()) break;
        if (bytes.size() > wanted)
          throw Error(ErrorCode::kUnsupported, "the transform's stream gives more than it is asked for");
        std::memcpy(to.data() + got, bytes.data(), bytes.size());
        got += bytes.size();
      }
      return got;
    });
  }
};

class PythonTransform final : public ItemTransform {
 public:
  explicit PythonTransform(nb::object transforms)
      : decodes_(nb::hasattr(transforms, "transform_load_stream")),
        sees_all_(decodes_ && nb::cast<bool>(places().attr("sees_all")(transforms))) {
    object_ = owner_of(std::move(transforms));
  }

  std::unique_ptr<ItemEncoder> encode(const WriteItem& item, Store store) override {
    return std::make_unique<PythonEncoder>(object(), item, std::move(store));
  }

  bool decodes(const std::vector<std::string>& descriptors) const override {
    if (!decodes_ || sees_all_) return sees_all_;
    if (descriptors.empty()) return false;
    return with_python([&] { return nb::cast<bool>(places().attr("is_theirs")(object(), descriptors)); });
  }

  std::unique_ptr<ItemDecoder> decode(const ReadItem& item, const std::vector<std::string>& descriptors,
                                      std::shared_ptr<const ByteSource> stored) override {
    return std::make_unique<PythonDecoder>(object(), item, descriptors, std::move(stored));
  }

 private:
  nb::handle object() const { return static_cast<PyObject*>(object_.get()); }

  bool decodes_, sees_all_;
  std::shared_ptr<void> object_;
};

}  // namespace

std::shared_ptr<ItemTransform> python_transform(nb::object transforms) {
  return std::make_shared<PythonTransform>(std::move(transforms));
}

}  // namespace cairn::python
