#include "lockstep/net/peer_handshake.h"

#include <stdexcept>

#include "lockstep/net/store_session.h"
#include "tests/fuzz/reader.h"

namespace lockstep::fuzz {

// What a stranger sends to a rank and to the store. Nonces are fresh each time, so that nothing may be admitted.
Reader handshake() {
  PeerHandshake client("key", 2, 0, 1), server("key", 2, 0, 1);
  const std::string hello = client.hello(), answer = server.answer(hello);
  client.check_answer(answer);
  return {.read =
              [](const std::string& bytes) {
                std::uint32_t rank = 0, connection = 0;
                PeerHandshake::parse_hello(bytes, rank, connection);
                PeerHandshake rank_0("key", 2, 0, 1), rank_2("key", 2, 0, 1);
                if (bytes.size() >= PeerHandshake::kHelloBytes) {
                  rank_0.answer(bytes.substr(0, PeerHandshake::kHelloBytes));
                }
                rank_2.hello();
                StoreSession session("the secret of this job", std::string(kStoreNonceBytes, 'n'));
                session.sent(session.output().size());
                const bool admitted = rank_2.check_answer(bytes) || rank_0.check_proof(bytes);
                session.receive(bytes);
                if (admitted || session.admitted()) throw std::logic_error("a stranger is admitted");
              },
          .seeds = {hello, answer, client.proof(), std::string(kStoreProofBytes, 'p')},
          .throws = false};
}

}  // namespace lockstep::fuzz
