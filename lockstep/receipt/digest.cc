#include "lockstep/receipt/digest.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <vector>

#include "lockstep/autograd/host_bytes.h"
#include "lockstep/autograd/tensor_impl.h"
#include "lockstep/base/error.h"
#include "lockstep/device/topology.h"

namespace lockstep {

Sha256 leaf_hash() {
  Sha256 hash;
  const std::byte kind{0};
  hash.update({&kind, 1});
  return hash;
}

void add_number(Sha256& hash, std::uint64_t number) { hash.update(std::as_bytes(std::span(&number, 1))); }

void add_text(Sha256& hash, std::string_view text) {
  add_number(hash, text.size());
  hash.update(std::as_bytes(std::span(text)));
}

void add_tensor(Sha256& hash, const Tensor& tensor) {
  const std::span<const std::byte> bytes = host_bytes("receipt", tensor);
  add_text(hash, name(tensor.dtype()));
  add_number(hash, static_cast<std::uint64_t>(tensor.dim()));
  for (const std::int64_t extent : tensor.shape()) add_number(hash, static_cast<std::uint64_t>(extent));
  hash.update(bytes);
}

Digest file_digest(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  Sha256 hash;
  std::vector<char> block(std::size_t{1} << 20);
  while (in) {
    in.read(block.data(), std::ssize(block));
    hash.update(std::as_bytes(std::span(block).first(static_cast<std::size_t>(in.gcount()))));
  }
  check(in.eof(), "{}: cannot read it", file.string());
  return digest_of(hash);
}

void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto take = [&] {
    for (std::size_t i = 0; (i = next.fetch_add(1)) < count;) {
      try {
        work(i);
      } catch (...) {
        next = count;
        throw;
      }
    }
  };
  std::vector<std::future<void>> helpers;
  for (std::size_t n = std::min(count, available_cpus().size()); n > 1; --n) {
    helpers.push_back(std::async(std::launch::async, take));
  }
  take();
  for (std::future<void>& helper : helpers) helper.get();
}

}  // namespace lockstep
