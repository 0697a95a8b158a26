#include "lockstep/data/formats/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

void GzipReader::Free::operator()(z_stream* inflater) const {
  inflateEnd(inflater);
  delete inflater;
}

GzipReader::GzipReader(std::istream& stream, std::string name) : stream_(stream), name_(std::move(name)) {
  refill();
  if (input_.size() < 2 || input_[0] != 0x1f || input_[1] != 0x8b) return;
  inflater_.reset(new z_stream{});
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(inflater_.get(), kGzipOnly) != Z_OK) throw std::bad_alloc();
}

std::size_t GzipReader::read(std::span<std::uint8_t> out) { return inflater_ ? inflate(out) : copy(out); }

// Reads more input if all has been used. Returns whether there is any.
bool GzipReader::refill() {
  if (input_.empty() && stream_) {
    stream_.read(reinterpret_cast<char*>(buffer_.data()), static_cast<std::streamsize>(buffer_.size()));
    check(!stream_.bad(), "cannot read {}: the system reports an error", name_);
    input_ = std::span(buffer_).first(static_cast<std::size_t>(stream_.gcount()));
  }
  return !input_.empty();
}

std::size_t GzipReader::copy(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size() && refill()) {
    const std::size_t n = std::min(out.size() - done, input_.size());
    std::copy_n(input_.begin(), n, out.begin() + static_cast<std::ptrdiff_t>(done));
    input_ = input_.subspan(n);
    done += n;
  }
  return done;
}

std::size_t GzipReader::inflate(std::span<std::uint8_t> out) {
  z_stream& z = *inflater_;
  std::size_t done = 0;
  while (done < out.size()) {
    if (!refill()) {
      check(!in_member_, "{}: the gzip stream ends early, the file is truncated", name_);
      break;
    }
    if (!std::exchange(in_member_, true)) inflateReset(&z);
    const auto room = static_cast<uInt>(std::min<std::size_t>(out.size() - done, std::numeric_limits<uInt>::max()));
    z.next_in = input_.data();
    z.avail_in = static_cast<uInt>(input_.size());
    z.next_out = out.data() + done;
    z.avail_out = room;
    const int status = ::inflate(&z, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    check(status == Z_OK || status == Z_STREAM_END, "{}: the gzip stream is corrupt: {}", name_,
          z.msg ? z.msg : "unusable data");
    in_member_ = status != Z_STREAM_END;
    input_ = input_.last(z.avail_in);
    done += room - z.avail_out;
  }
  return done;
}

}  // namespace lockstep
