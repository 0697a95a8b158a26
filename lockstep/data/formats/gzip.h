// Internal: reads a stream that may be gzipped (RFC 1952), which its first bytes show.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>

struct z_stream_s;

namespace lockstep {

class GzipReader {
 public:
  // The stream must outlive the reader. Errors call it `name`.
  GzipReader(std::istream& stream, std::string name);

  // Fills `out` with the next bytes, unpacked if the stream is gzipped, and returns their number: less than out.size()
  // only at the end. Throws on read errors and if a gzip stream is corrupt or ends early.
  std::size_t read(std::span<std::uint8_t> out);
  bool packed() const { return inflater_ != nullptr; }

 private:
  struct Free {
    void operator()(z_stream_s* inflater) const;
  };

  bool refill();
  std::size_t copy(std::span<std::uint8_t> out);
  std::size_t inflate(std::span<std::uint8_t> out);

  std::istream& stream_;
  std::string name_;
  std::array<std::uint8_t, 64 * 1024> buffer_;
  std::span<std::uint8_t> input_;               // the unused part of buffer_
  std::unique_ptr<z_stream_s, Free> inflater_;  // null: the stream is not gzipped
  bool in_member_ = true;                       // a gzip stream is one or more members, one after the other
};

}  // namespace lockstep
