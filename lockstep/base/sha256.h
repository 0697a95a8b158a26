// Internal: SHA-256 (FIPS 180-4), fed piece by piece.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct SHA256state_st;

namespace lockstep {

class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  // Digest (32 bytes) of all bytes so far. More bytes may follow.
  std::string digest() const;
  // The digest in 64 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(SHA256state_st* context) const;
  };
  std::unique_ptr<SHA256state_st, Free> context_;
};

}  // namespace lockstep
