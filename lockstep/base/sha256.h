// Internal: SHA-256 (FIPS 180-4), fed piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct evp_md_ctx_st;

namespace lockstep {

class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  // 64 lower-case hexadecimal digits: the digest of all bytes so far. More may follow.
  std::string hex() const;

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace lockstep
