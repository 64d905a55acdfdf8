package attach

import "testing"

// tls: an export of a gateway with keys is attached; TLS ends in the process behind the device. The
// gateway is killed while that is written to, and comes back. Who has no keys is refused.
func (r *rig) tls(t *testing.T) {
	r.run(t, `mkdir -p pki; cd pki
		openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
		for who in server client; do
			openssl req -newkey ed25519 -nodes -subj /CN=$who -keyout $who.key -out $who.csr
			echo subjectAltName=IP:127.0.0.1 > ext
			openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
				-extfile ext -out $who.pem
		done 2> openssl.log`)
	const gateway = "(sluice nbd --listen 127.0.0.1:10810 --tls-cert pki/server.pem " +
		"--tls-key pki/server.key --tls-ca pki/ca.pem --export name=w,volume=w > gateway 2>&1 " +
		"< /dev/null & echo $! > pid); until grep -q 'serving nbds' gateway; do sleep 0.1; done; "
	r.run(t, gateway+`sluice attach nbds://127.0.0.1:10810/w --name secret --tls-ca pki/ca.pem \
			--tls-cert pki/client.pem --tls-key pki/client.key
		rm -f dd.code; dd if=/dev/urandom of=data bs=1M count=4 status=none
		(dd if=data of=/dev/sluice/secret bs=64k oflag=direct conv=fsync status=none
		echo $? > dd.code) > dd.out 2>&1 < /dev/null &
		sleep 0.3; kill -9 $(cat pid); while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done
		`+gateway+`until [ -e dd.code ]; do sleep 0.1; done; cat dd.out; [ $(cat dd.code) = 0 ]
		rm dd.code; echo 3 > /proc/sys/vm/drop_caches; cmp -n 4194304 data /dev/sluice/secret
		sluice detach secret
		if sluice attach nbds://127.0.0.1:10810/w --name secret --tls-ca pki/ca.pem > out 2>&1; then
			cat out; exit 9; fi
		kill $(cat pid); while kill -0 $(cat pid) 2> /dev/null; do sleep 0.1; done`)
	r.nothing(t)
}
