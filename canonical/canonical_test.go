package canonical

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonicalJSONKeepsEveryDigit(t *testing.T) {
	got, err := CanonicalJSON([]byte(`{"b":1.0,"a":[1e2,-0,0.001,1e-9,9007199254740993],"é":"\u00e9\n"}`))
	require.NoError(t, err)
	require.Equal(t, `{"a":[100,0,0.001,1e-9,9007199254740993],"b":1,"é":"é\n"}`, string(got))
}
