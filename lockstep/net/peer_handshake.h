// Internal: the messages with which two ranks authenticate each other on a new connection, and the keys for the tags of
// later messages. This class does no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// client: hello, with a nonce. server: a nonce and HMAC(key, both nonces, "server"). client: HMAC(key, both nonces,
// "client"). server: one byte. Fresh nonces make recorded messages useless.
class PeerHandshake {
 public:
  static constexpr std::size_t kHelloBytes = 32, kAnswerBytes = 48, kProofBytes = 32, kWelcomeBytes = 1;

  // Rank `client` connects to rank `server`; `connection` is the index of the connection between them.
  PeerHandshake(std::string_view key, std::uint32_t client, std::uint32_t server, std::uint32_t connection);

  // The client's side.
  std::string hello() const;
  bool check_answer(std::string_view answer);
  std::string proof() const { return mac("client"); }

  // The server's side.
  static bool parse_hello(std::string_view hello, std::uint32_t& client, std::uint32_t& connection);
  std::string answer(std::string_view hello);
  bool check_proof(std::string_view proof) const;

  // The keys of both directions after the handshake. Both sides get the same keys, and each connection gets new ones.
  std::string key_of_client() const { return mac("messages of the client"); }
  std::string key_of_server() const { return mac("messages of the server"); }

 private:
  std::string mac(std::string_view side) const;

  std::string key_;
  std::uint32_t client_, server_, connection_;
  std::string client_nonce_, server_nonce_;
};

}  // namespace lockstep
